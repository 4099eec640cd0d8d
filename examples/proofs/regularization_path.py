"""
A regularization path
=====================

How strong should the penalty be, and how many weights are needed? A regularization path trains
models for many values of ``C``. Each run starts from the previous solution, and every point has a
certificate.
"""

# %%
# Synthetic sequences with 200 features, of which 12 are informative.

import matplotlib.pyplot as plt
import numpy as np

import cliquewise as cw

rng = np.random.default_rng(0)
signal = rng.normal(size=(12, 3))


def sequence(length=10):
    """Return features, and labels that tend to stay the same."""
    labels = np.cumsum(rng.random(length) < 0.25) % 3
    x = rng.normal(size=(length, 200))
    x[:, :12] += 0.5 * signal[:, labels].T
    return x / 4, labels.tolist()


X, y = zip(*(sequence() for _ in range(80)), strict=True)
new_X, new_y = zip(*(sequence() for _ in range(200)), strict=True)

# %%
# Compute two paths: one with an L2 penalty, and one with a mostly L1 penalty, which sets weights to
# zero.

Cs = np.geomspace(0.1, 100, 9)
tagger = cw.SequenceTagger(tol=1e-2, random_state=0)
path = cw.regularization_path(tagger, X, y, Cs, l1_ratios=[0.0, 0.7])
print(f"largest gap of all points: {max(model.certificate_.gap for model in path):.4f}")

# %%
# Held-out accuracy is highest at an intermediate strength of the penalty.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
cw.plot.regularization_path(path, new_X, new_y, ax=left)
cw.plot.regularization_path(path, of="nonzero", ax=right)
plt.show()

# %%
# With a strong penalty, only the informative features ``x0`` to ``x11`` keep large weights.

few = min((m for m in path if m.l1_ratio > 0 and m.n_nonzero_ > 20), key=lambda m: m.n_nonzero_)
axis = cw.plot.weights(few, n=12)
axis.set_title(f"C = {few.C:.2g}: {few.n_nonzero_} of {few.coef_.size} weights")
plt.show()
