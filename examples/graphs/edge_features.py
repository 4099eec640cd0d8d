"""
Direction-dependent edges
=========================

In a landscape, the sky is above the hills, and the hills are above the water; horizontal neighbors
are usually equal. Such rules are asymmetric and depend on the direction. With edge features, a
:class:`~cliquewise.GraphLabeler` learns one table per direction.
"""

# %%
# Synthetic landscapes with three layers. Sky and water have the same color, so a single pixel
# cannot distinguish them.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from scipy.ndimage import gaussian_filter1d

import cliquewise as cw
from cliquewise.data.images import grids, to_images

NAMES = ["sky", "hills", "water"]
rng = np.random.default_rng(0)


def landscape(height=12, width=16):
    """Return a gray image and its layers."""
    ridge = height * 0.35 + 10 * gaussian_filter1d(rng.normal(size=width), 3)
    shore = np.maximum(ridge + 2, height * 0.7 + 6 * gaussian_filter1d(rng.normal(size=width), 4))
    rows = np.arange(height)[:, None]
    layers = (rows >= ridge).astype(int) + (rows >= shore)
    return (layers == 1) + 0.7 * rng.normal(size=layers.shape), layers


images, layers = zip(*(landscape() for _ in range(24)), strict=True)
train, test = slice(0, 12), slice(12, None)

# %%
# ``grids`` adds the direction of each edge as a feature. The baseline gets the same nodes and edges
# without directions.

examples = grids(images)
plain = [(x["features"], x["edges"]) for x in examples]
settings = {"loss": "hinge", "C": 0.05, "tol": 1e-2, "random_state": 0}
one_table = cw.GraphLabeler(pairwise="symmetric", **settings).fit(plain[train], layers[train])
directed = cw.GraphLabeler(**settings).fit(examples[train], layers[train])
without = to_images(one_table.predict(plain[test]), images[test])
best = to_images(directed.predict(examples[test]), images[test])
print(f"one table for all edges:   {np.mean(np.array(without) == layers[test]):.1%} of the pixels")
print(f"a table for each direction: {np.mean(np.array(best) == layers[test]):.1%}")

# %%
# Predictions for three test images.

colors = ListedColormap(["#56b4e9", "#8a6d3b", "#0072b2"])
figure, axes = plt.subplots(3, 4, figsize=(10, 5.4), layout="constrained")
titles = ["measured", "one table", "a table per direction", "truth"]
for row in range(3):
    shown = [images[test][row], without[row], best[row], layers[test][row]]
    for axis, title, values in zip(axes[row], titles, shown, strict=True):
        layered = {"cmap": colors, "vmin": 0, "vmax": 2}
        axis.imshow(values, **({"cmap": "gray"} if title == "measured" else layered))
        axis.set_title(title if row == 0 else "")
        axis.axis("off")
plt.show()

# %%
# The learned tables of horizontal and vertical neighbors. The last table is shared by all edges.

*tables, shared = directed.tables()
tables = [table + shared for table in tables]
limit = np.abs(tables).max()
figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
directions = [("left", "right"), ("above", "below")]
for axis, table, (first, second) in zip(axes, tables, directions, strict=True):
    picture = axis.imshow(table, cmap="RdBu", vmin=-limit, vmax=limit)
    axis.set(xticks=range(3), yticks=range(3), xlabel=second, ylabel=first)
    axis.set_xticklabels(NAMES)
    axis.set_yticklabels(NAMES)
    for a in range(3):
        for b in range(3):
            dark = abs(table[a, b]) > 0.6 * limit
            axis.text(
                b, a, f"{table[a, b]:.1f}", ha="center", va="center", color="w" if dark else "k"
            )
figure.colorbar(picture, ax=axes, shrink=0.8)
plt.show()
