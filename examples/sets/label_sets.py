"""
Sets of labels that depend on each other
========================================

A photo shows a beach, and the sea, and a sunset. Labels come together, or exclude each other,
beyond what the features tell. A :class:`~cliquewise.MultiLabelClassifier` finds out which pairs of
labels matter, and asks about all labels at once.
"""

# %%
# Made here: eight labels; a scene switches some of them on together, and the features see the
# scenes only through noise.

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
    """Rows, and a 0/1 table of labels."""
    scene = rng.integers(len(SCENES), size=n)
    flipped = rng.random((n, len(NAMES))) < 0.03
    return centers[scene] + 1.3 * rng.normal(size=(n, 10)), on[scene] ^ flipped


X, Y = photos(600)
new_X, new_Y = photos(600)

# %%
# Without arguments it chooses the penalty and the pairs on rows that it holds out for that.

together = cw.MultiLabelClassifier(random_state=0).fit(X, Y)
apart = cw.MultiLabelClassifier(label_graph="none", random_state=0).fit(X, Y)
print("pairs:", [(str(NAMES[a]), str(NAMES[b])) for a, b in together.label_graph_])

# %%
# Single labels gain a little, whole sets much: what never comes together is not said together.

for name, model in (("each label by itself", apart), ("together", together)):
    labels = np.mean(model.predict(new_X) == new_Y)
    method = {"method": "junction-tree"} if model is together else {}
    sets = np.mean((model.predict(new_X, **method) == new_Y).all(axis=1))
    print(f"{name:21} labels {labels:.1%}   whole sets {sets:.1%}")

# %%
# What comes together, in the data and in the model. A pair's weight is what both being on adds,
# beyond what the features say of each.

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
