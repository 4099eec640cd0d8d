"""
Multi-label classification with interactions
============================================

A photo shows a beach, the sea, and a sunset. Some labels occur together, and others exclude each
other, beyond what the features predict. A :class:`~cliquewise.MultiLabelClassifier` finds the pairs
of labels that interact and predicts all labels jointly.
"""

# %%
# Synthetic data with eight labels. A scene switches several labels on together, and the features
# are noisy indicators of the scene.

import matplotlib.pyplot as plt
import numpy as np

import cliquewise as cw

NAMES = np.array(["beach", "sea", "sunset", "snow", "mountain", "people", "night", "city"])
SCENES = [["beach", "sea"], ["beach", "sea", "sunset"], ["snow", "mountain"], ["city", "night"],
          ["city", "people"], ["mountain", "sunset"]]  # fmt: skip
rng = np.random.default_rng(0)
on = np.array([np.isin(NAMES, scene) for scene in SCENES], dtype=int)
centers = rng.normal(size=(len(SCENES), 10))


def photos(n):
    """Return rows and a 0/1 matrix of labels."""
    scene = rng.integers(len(SCENES), size=n)
    flipped = rng.random((n, len(NAMES))) < 0.03
    return centers[scene] + 1.3 * rng.normal(size=(n, 10)), on[scene] ^ flipped


X, Y = photos(600)
new_X, new_Y = photos(600)

# %%
# By default, the penalty and the pairs are selected on held-out rows.

together = cw.MultiLabelClassifier(random_state=0).fit(X, Y)
apart = cw.MultiLabelClassifier(label_graph="none", random_state=0).fit(X, Y)
print("pairs:", [(str(NAMES[a]), str(NAMES[b])) for a, b in together.label_graph_])

# %%
# Joint prediction improves single labels slightly and whole sets considerably.

for name, model in (("each label by itself", apart), ("together", together)):
    labels = np.mean(model.predict(new_X) == new_Y)
    method = {"method": "junction-tree"} if model is together else {}
    sets = np.mean((model.predict(new_X, **method) == new_Y).all(axis=1))
    print(f"{name:21} labels {labels:.1%}   whole sets {sets:.1%}")

# %%
# Correlations in the data, and pairwise weights in the model. The weight of a pair is the score of
# both labels being on, in addition to the scores of the features.

data = np.corrcoef(Y.T)
np.fill_diagonal(data, 0)
learned = np.zeros_like(data)
for a, b in together.label_graph_:
    table = together.table(a, b)
    learned[a, b] = learned[b, a] = table[1, 1] + table[0, 0] - table[0, 1] - table[1, 0]

figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
for axis, values, title in zip(
    axes, (data, learned), ("correlation in the data", "weight of a pair")
):
    limit = abs(values).max()
    picture = axis.imshow(values, cmap="RdBu", vmin=-limit, vmax=limit)
    axis.set(xticks=range(len(NAMES)), yticks=range(len(NAMES)), title=title)
    axis.set_xticklabels(NAMES, rotation=45, ha="right")
    axis.set_yticklabels(NAMES)
    figure.colorbar(picture, ax=axis, shrink=0.8)
plt.show()
