"""
How certificates work
=====================

Training minimizes a function of the weights. When should it stop? Most tools stop when the
objective barely changes, or after a number of epochs, and cannot tell how far it is from the
optimum. Here every run computes two numbers that enclose the optimum.
"""

# %%
# Train a tagger on synthetic sequences to a very small gap, so that the optimum is known to many
# digits.

import matplotlib.pyplot as plt
import numpy as np

import cliquewise as cw

rng = np.random.default_rng(0)
X, y = [], []
for _ in range(150):
    labels = np.cumsum(rng.random(12) < 0.3) % 4
    X.append(np.eye(4)[labels] + 0.8 * rng.normal(size=(12, 4)))
    y.append(labels.tolist())
best = cw.SequenceTagger(tol=1e-8, random_state=0).fit(X, y).certificate_
optimum = best.primal

# %%
# The primal value is the objective at the current weights, so it is never below the optimum. The
# dual value is never above it. The certificate contains both.

tagger = cw.SequenceTagger(tol=1e-6, random_state=0).fit(X, y)
print(tagger.certificate_)

# %%
# Both values approach the optimum. The true distance of the primal value from the optimum is
# unknown during training, but the gap is known and is an upper bound on it.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
trace = tagger.trace_
left.plot(trace.epochs, trace.primal, "o-", ms=3, color="#d55e00", label="primal")
left.plot(trace.epochs, trace.dual, "s-", ms=3, color="#0072b2", label="dual")
left.fill_between(trace.epochs, trace.dual, trace.primal, color="0.9")
left.axhline(optimum, color="k", lw=1, ls=":", label="optimum")
left.set(xlabel="passes", ylabel="objective", ylim=(optimum * 0.8, optimum * 1.25))
left.legend()
runs = {
    solver: cw.SequenceTagger(solver=solver, tol=1e-6, random_state=0).fit(X, y)
    for solver in ("sdca", "lbfgs", "sag")
}
cw.plot.convergence(runs, x="passes", target=1e-6, ax=right)
for line, run in zip(right.get_lines(), runs.values(), strict=False):
    error = np.maximum(run.trace_.primal - optimum, 1e-12) / run.trace_.primal
    right.plot(run.trace_.epochs, error, ":", color=line.get_color())
right.set(title="solid: proved; dotted: true, and unknown then", ylim=(1e-9, 2))
plt.show()

# %%
# Training stops when the gap is at most ``tol``. A run that ends earlier warns and states the gap:

import warnings

with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    early = cw.SequenceTagger(tol=1e-6, max_epochs=3, random_state=0).fit(X, y)
print(heard[0].message)
early.certificate_

# %%
# Inference returns certificates as well: a labeling comes with an upper bound on the score of every
# labeling. Here both are equal, which proves that the labeling is optimal.

graph = cw.builders.grid(rng.normal(size=(12, 12, 3)), 0.8 * np.eye(3), 0.8 * np.eye(3))
found = graph.map()
print(f"score {found.score:.4f}, no labeling has more than {found.upper_bound:.4f}: {found.exact}")
