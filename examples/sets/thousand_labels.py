"""
Thousands of labels
===================

A chain with 2,000 labels has four million transitions. Methods that process whole sequences read
all of them for every token in every epoch. ``gdmm`` keeps a few active labels per token, and finds
the best pair of labels without reading the whole table.
"""

# %%
# Synthetic sequences with 2,000 labels. Each label has few successors, and its features are its
# name and noise.

import time

import matplotlib.pyplot as plt
import numpy as np

import cliquewise as cw

rng = np.random.default_rng(0)


def sequences(n, n_labels, length=10):
    """Return features and labels."""
    follows = rng.integers(n_labels, size=(n_labels, 3))
    X, y = [], []
    for _ in range(n):
        labels = [int(rng.integers(n_labels))]
        while len(labels) < length:
            labels.append(int(follows[labels[-1], rng.integers(3)]))
        X.append(
            [[f"code={k % 97}", f"group={k // 97}", f"noise={rng.integers(50)}"] for k in labels]
        )
        y.append(labels)
    return X, y


# %%
# Measure the time of an epoch for growing numbers of labels.

settings = {"loss": "hinge", "C": 0.1, "solver": "gdmm", "tol": 0.05, "max_epochs": 60}
cw.SequenceTagger(**settings, random_state=0).fit(*sequences(20, 30))  # compiles, once
sizes = [125, 500, 2000]
seconds, models = [], {}
for n_labels in sizes:
    X, y = sequences(200, n_labels)
    tagger = cw.SequenceTagger(**settings, random_state=0)
    start = time.process_time()
    models[n_labels] = tagger.fit(X, y)
    seconds.append((time.process_time() - start) / tagger.n_iter_)
tagger.certificate_

# %%
# For comparison: the number of transitions grows quadratically.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
axes[0].plot(sizes, seconds, "o-", color="#0072b2", label="gdmm")
table = seconds[0] * (np.array(sizes) / sizes[0]) ** 2
axes[0].plot(sizes, table, "--", color="0.6", label="if it read whole tables")
axes[0].set(xlabel="labels", ylabel="seconds a pass", xscale="log", yscale="log")
axes[0].set_xticks(sizes, [f"{n:,}" for n in sizes])
axes[0].set_xticks([], minor=True)
axes[0].legend()
runs = {f"{n_labels:,} labels": model for n_labels, model in models.items()}
cw.plot.convergence(runs, x="passes", ax=axes[1])
plt.show()
