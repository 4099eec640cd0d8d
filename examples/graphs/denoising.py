"""
Denoise an image
================

Classify every pixel of a noisy image. Classifying pixels one by one gives noisy results. A
:class:`~cliquewise.GraphLabeler` on the grid of pixels learns how strongly neighbors agree, and
finds the labeling of the whole image that is proven optimal.
"""

# %%
# Synthetic images: three classes with smooth borders, and a noisy measurement of each pixel.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from scipy.ndimage import gaussian_filter

import cliquewise as cw
from cliquewise.data.images import grids, to_images

rng = np.random.default_rng(0)


def picture(size):
    """Return a noisy image and its true labels."""
    fields = [gaussian_filter(rng.normal(size=(size, size)), 4) for _ in range(3)]
    truth = np.argmax(fields, axis=0)
    return truth + 0.9 * rng.normal(size=truth.shape), truth


# %%
# The features of a pixel are its value and its distance from each of the three class means.


def features(image):
    """Return an array of shape (height, width, 4)."""
    return np.stack([image, *(-((image - level) ** 2) for level in range(3))], axis=-1)


train = [picture(16) for _ in range(8)]
X, y = grids([features(image) for image, _ in train]), [truth for _, truth in train]
labeler = cw.GraphLabeler(C=0.1, pairwise="potts", tol=1e-2, random_state=0).fit(X, y)
labeler.certificate_

# %%
# Label an image of 60 by 60 pixels, larger than the training images.

image, truth = picture(60)
large = grids([features(image)])
best = to_images(labeler.predict(large), [image])[0]
graph = labeler.graph(large[0])
found = graph.map()
print(found.method, "proved the best labeling:", found.exact)

pixels = cw.MulticlassClassifier(C=0.1, random_state=0)
pixels.fit(
    np.concatenate([features(i).reshape(-1, 4) for i, _ in train]), np.concatenate(y).ravel()
)
alone = pixels.predict(features(image).reshape(-1, 4)).reshape(truth.shape)

# %%
# Compare the predictions of independent pixels with the joint prediction.

grounds = ListedColormap(["#0072b2", "#e9dfc7", "#009e73"])
figure, axes = plt.subplots(1, 4, figsize=(11, 3.1), layout="constrained")
shown = [
    ("measured", image, "gray"),
    ("pixel by pixel", alone, grounds),
    ("all together", best, grounds),
    ("truth", truth, grounds),
]
for axis, (title, values, colors) in zip(axes, shown, strict=True):
    axis.imshow(values, cmap=colors, interpolation="nearest")
    if colors is grounds and title != "truth":
        title += f": {np.mean(values == truth):.0%} right"
    axis.set_title(title, fontsize=10)
    axis.axis("off")
plt.show()
