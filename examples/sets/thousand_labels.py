"""
Thousands of labels
===================

A chain with 2,000 labels has four million transitions. Methods that look at whole sequences touch
all of them, for every token and in every pass. ``gdmm`` keeps, for each token, the few labels that
come near the best one, and finds the best pair of labels without reading the table.
"""

# %%
# Sequences over 2,000 labels, made here: each label is followed by one of a few, and has a name
# and some noise as features.

import time

import matplotlib.pyplot as plt
import numpy as np

import cliquewise as cw

rng = np.random.default_rng(0)


def sequences(n, n_labels, length=10):
    """Features and labels."""
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
# The time of a pass, as the number of labels grows.

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
# With a table of all transitions the time would grow with their number.

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
