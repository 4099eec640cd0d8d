"""
A neural tagger
===============

A network scores the labels of every token, and a CRF on top of it finds the best sequence. Both are
trained jointly. This example needs PyTorch (``pip install 'cliquewise[torch]'``) and prints a note
if it is not installed.
"""

# %%
# Synthetic data: points move between three regimes. Each regime is an arm of a spiral, so linear
# scores cannot separate them.

import importlib.util

import matplotlib.pyplot as plt
import numpy as np

rng = np.random.default_rng(0)


def walk(length=25):
    """Return points in the plane and their regimes."""
    regime = np.zeros(length, dtype=int)
    for t in range(length):
        regime[t] = rng.integers(3) if t == 0 or rng.random() < 0.15 else regime[t - 1]
    radius = rng.uniform(0.2, 1, length)
    angle = 4 * radius + 2 * np.pi / 3 * regime + 0.35 * rng.normal(size=length)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), regime


X, y = map(np.stack, zip(*(walk() for _ in range(200)), strict=True))
train, test = slice(0, 120), slice(120, None)
has_torch = importlib.util.find_spec("torch") is not None
if not has_torch:
    print("PyTorch is not installed, so that nothing is trained here.")

# %%
# Compare a linear CRF, a network without a CRF, and a network with a CRF.

results = {}
if has_torch:
    import torch

    import cliquewise as cw
    from cliquewise import torch as cwt

    linear = cw.SequenceTagger(random_state=0).fit(list(X[train]), y[train].tolist())
    results["linear chain"] = np.array(linear.predict(list(X[test])))

    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = torch.nn.Sequential(
        torch.nn.Linear(2, 32), torch.nn.ELU(), torch.nn.Linear(32, 32), torch.nn.ELU(),
        torch.nn.Linear(32, 3),
    )  # fmt: skip
    inputs = torch.tensor(X, dtype=torch.float32)
    tagger = cwt.StructuredClassifier(
        network, "chain", "log", cwt.Adam(rate=0.02), n_labels=3, max_epochs=25, random_state=0
    )
    tagger.fit(inputs[train], torch.tensor(y[train]))
    with torch.no_grad():
        results["network, token by token"] = network(inputs[test]).argmax(-1).numpy()
    results["network and chain"] = np.asarray(tagger.predict(inputs[test]))
for name, found in results.items():
    print(f"{name:24} {np.mean(found == y[test]):.1%} right")

# %%
# Left: the decision regions of the network. Right: a sequence with noisy scores, and the labels
# that the CRF predicts from them.

colors = np.array(["#0072b2", "#d55e00", "#009e73"])
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
if has_torch:
    axis = np.linspace(-1.1, 1.1, 120)
    plane = np.stack(np.meshgrid(axis, axis), axis=-1).astype(np.float32)
    with torch.no_grad():
        regions = network(torch.tensor(plane)).argmax(-1).numpy()
    left.contourf(axis, axis, regions, levels=[-0.5, 0.5, 1.5, 2.5], colors=colors, alpha=0.25)
left.scatter(*X[test].reshape(-1, 2).T, c=colors[y[test].ravel()], s=4)
left.set(aspect="equal", xticks=[], yticks=[], title="the plane, and the network's regions")
rows = {"truth": y[test], **results}
wrong = [np.sum(found != y[test], axis=1) for found in rows.values()]
shown = int(np.argmax(wrong[1 % len(rows)] + wrong[2 % len(rows)] - 3 * wrong[-1]))
for r, labels in enumerate(rows.values()):
    right.scatter(range(25), [-r] * 25, c=colors[labels[shown]], s=60, marker="s")
    off = np.flatnonzero(labels[shown] != y[test][shown])
    right.scatter(off, np.full(len(off), -r), c="k", s=30, marker="x")
right.set(
    yticks=[-r for r in range(len(rows))], xlabel="step", title="one sequence; crosses are wrong"
)
right.set_yticklabels(rows)
plt.show()
