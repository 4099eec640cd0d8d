"""
Locate a digit in an image
==========================

Where in the image is the digit? Each image has a list of candidate boxes, and a
:class:`~cliquewise.CandidateRanker` learns to choose one. The cost of a box is one minus its
overlap with the true box.
"""

# %%
# Scenes of 24 by 24 pixels: one of scikit-learn's handwritten digits, scaled up, on clutter made of
# pieces of other digits.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle
from sklearn.datasets import load_digits

import cliquewise as cw

rng = np.random.default_rng(0)
digits = load_digits().images / 16
BOXES = [(t, s, t + 8, s + 8) for t in range(0, 17, 2) for s in range(0, 17, 2)]


def scene():
    """Return an image and the box of its digit."""
    image = 0.15 * rng.random((24, 24))
    for _ in range(18):
        t, s = rng.integers(0, 21, 2)
        piece = digits[rng.integers(len(digits))][2:6, 2:6]
        image[t : t + 4, s : s + 4] = np.maximum(image[t : t + 4, s : s + 4], piece)
    top, left = rng.integers(0, 17, 2)
    image[top : top + 8, left : left + 8] = digits[rng.integers(len(digits))]
    return image, (int(top), int(left), int(top) + 8, int(left) + 8)


# %%
# The features of a candidate are the pixels inside the box, those of a frame around it, and their
# products with the mean.


def features(image):
    """Return one row of features per box."""
    framed = np.pad(image, 2)
    rows = []
    for top, left, bottom, right in BOXES:
        window = framed[top : bottom + 4, left : right + 4]
        inner = window[2:-2, 2:-2]
        rows.append(np.concatenate([window.ravel(), (inner**2).ravel()]))
    return np.array(rows) / 4


images, truth = zip(*(scene() for _ in range(260)), strict=True)
X = [features(image) for image in images]
costs = [1 - cw.metrics.iou(box, BOXES) for box in truth]
train, test = slice(0, 180), slice(180, None)
ranker = cw.CandidateRanker(C=1.0, tol=1e-2, random_state=0).fit(X[train], costs[train])
chosen = [BOXES[c] for c in ranker.predict(X[test])]
brightest = [BOXES[x[:, :144].sum(axis=1).argmax()] for x in X[test]]
overlap = cw.metrics.iou(truth[test], chosen)
print(f"overlap above one half: brightest box {cw.metrics.corloc(truth[test], brightest):.0%}, "
      f"learned {cw.metrics.corloc(truth[test], chosen):.0%}")  # fmt: skip
ranker.certificate_

# %%
# Test scenes. Orange is the true box, blue the prediction.

figure, axes = plt.subplots(2, 5, figsize=(10, 4.3), layout="constrained")
for i, axis in enumerate(axes.flat):
    axis.imshow(images[test][i], cmap="gray_r")
    marks = ((truth[test][i], "#d55e00", "-", 3), (chosen[i], "#0072b2", "--", 2))
    for (top, left, bottom, right), color, line, width in marks:
        corner = (left - 0.5, top - 0.5)
        axis.add_patch(Rectangle(corner, right - left, bottom - top, fill=False, ec=color,
                                 ls=line, lw=width))  # fmt: skip
    axis.set_title(f"overlap {overlap[i]:.0%}", fontsize=9)
    axis.axis("off")
plt.show()
