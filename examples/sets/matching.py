"""
Match two sets of points
========================

Match the stars of two photos. Each row belongs to at most one column, so choosing the nearest star
for each row is not enough. A :class:`~cliquewise.Matcher` learns the weights of a good pair and
finds the best matching.
"""

# %%
# Two synthetic views of the sky: the second one is shifted, some stars are missing and some are
# new. The features of a pair are the distance and the differences of brightness and color.

import matplotlib.pyplot as plt
import numpy as np

import cliquewise as cw

rng = np.random.default_rng(0)


def sky(n=14):
    """Return two views (x, y, brightness, color) and the column of each row, -1 for none."""
    first = rng.uniform(0, 1, (n, 4))
    kept = rng.permutation(n)[: n - 3]
    moved = first[kept] + rng.normal(size=(n - 3, 4)) * [0.05, 0.05, 0.12, 0.12]
    columns = np.full(n, -1)
    columns[kept] = np.arange(n - 3)
    return first, np.concatenate([moved, rng.uniform(0, 1, (3, 4))]), columns


def features(first, second):
    """Return an array of shape (rows, columns, 3)."""
    difference = first[:, None] - second
    distance = np.sqrt((difference[..., :2] ** 2).sum(axis=-1))
    return np.stack([distance, abs(difference[..., 2]), abs(difference[..., 3])], axis=-1)


views = [sky() for _ in range(60)]
X, y = [features(a, b) for a, b, _ in views], [columns for *_, columns in views]
train, test = slice(0, 30), slice(30, None)
matcher = cw.Matcher(C=1.0, random_state=0).fit(X[train], y[train])
print("weights of distance, brightness, color:", matcher.coef_.round(1))
matcher.certificate_

# %%
# The baseline assigns each row to the nearest star, if it is close enough.


def nearest(x, reach):
    """Return the nearest column of each row, -1 if it is too far."""
    return np.where(x[..., 0].min(axis=1) < reach, x[..., 0].argmin(axis=1), -1)


reach = max(
    np.linspace(0.05, 0.4, 15),
    key=lambda r: cw.metrics.pair_f1(y[train], [nearest(x, r) for x in X[train]]),
)
greedy = [nearest(x, reach) for x in X[test]]
found = matcher.predict(X[test])
for name, answer in (("nearest", greedy), ("matcher", found)):
    print(f"{name}: F1 of the pairs {cw.metrics.pair_f1(y[test], answer):.2f}")

# %%
# One pair of photos. Circles are stars of the first view and squares stars of the second; dashed
# lines are errors.

gain = [np.sum(f == t) - np.sum(g == t) for f, g, t in zip(found, greedy, y[test], strict=True)]
shown = int(np.argmax(gain))
first, second, truth = views[test][shown]
look = {"cmap": "cividis", "vmin": 0, "vmax": 1, "edgecolors": "k", "zorder": 3}
figure, axes = plt.subplots(1, 2, figsize=(10, 5.2), layout="constrained")
for axis, name, columns in zip(axes, ("nearest", "matcher"), (greedy[shown], found[shown])):
    for a, b in enumerate(columns):
        if b >= 0:
            right = truth[a] == b
            line = ("-", "#0072b2") if right else ("--", "#d55e00")
            axis.plot(*zip(first[a, :2], second[b, :2]), ls=line[0], color=line[1], lw=2.5)
    for points, marker in ((first, "o"), (second, "s")):
        sizes = 40 + 120 * points[:, 2].clip(0, 1)
        axis.scatter(*points[:, :2].T, s=sizes, c=points[:, 3], marker=marker, **look)
    right = np.sum((columns == truth) & (columns >= 0))
    wrong = np.sum(columns >= 0) - right
    axis.set_title(f"{name}: {right} of {np.sum(truth >= 0)} pairs right, {wrong} wrong")
    axis.set(xticks=[], yticks=[], aspect="equal")
plt.show()
