"""Data that need no download: handwritten numbers made of scikit-learn's digit images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.errors import DataError


@dataclass(frozen=True, eq=False)
class HandwrittenNumbers:
    """Sequences of 8 x 8 images of digits.

    Parameters
    ----------
    X : list of float64 arrays (length, 64)
        Pixels of each digit, 0 (paper) to 1 (ink).
    y : list of lists of int
        The digits.
    """

    X: list[NDArray[np.float64]]
    y: list[list[int]]

    def __len__(self) -> int:
        return len(self.y)


def handwritten_numbers(
    n_train: int = 300, n_test: int = 300, noise: float = 0.3, random_state: Any = 0
) -> tuple[HandwrittenNumbers, HandwrittenNumbers]:
    """Counters that go up by a fixed rule, written by hand and then smudged.

    A sequence begins anywhere; each digit is the one before it plus one (probability 0.7),
    plus two (0.2), or any digit (0.1), modulo ten. So a digit that cannot be read can be
    guessed from its neighbors. No image of the training part occurs in the test part: the
    images are split first, then sequences of 5 to 12 digits are drawn from each part.

    Parameters
    ----------
    n_train, n_test : int, default=300
        Number of sequences.
    noise : float, default=0.3
        Standard deviation of the noise added to every pixel.
    random_state : int or Generator, default=0

    Returns
    -------
    train, test : HandwrittenNumbers

    Examples
    --------
    >>> train, test = handwritten_numbers(3, 2)
    >>> len(train), len(test), train.X[0].shape[1]
    (3, 2, 64)
    """
    from sklearn.datasets import load_digits

    if n_train < 1 or n_test < 1 or not noise >= 0:
        raise DataError("n_train and n_test are at least 1, noise is not negative")
    rng = np.random.default_rng(random_state)
    pixels, digits = load_digits(return_X_y=True)
    order = rng.permutation(len(digits))
    half = len(order) // 2
    parts = []
    for count, images in ((n_train, order[:half]), (n_test, order[half:])):
        by_digit = [images[digits[images] == d] for d in range(10)]
        parts.append(_draw(count, by_digit, pixels / 16.0, noise, rng))
    return parts[0], parts[1]


def _draw(
    count: int,
    by_digit: list[NDArray[np.int64]],
    pixels: NDArray[np.float64],
    noise: float,
    rng: np.random.Generator,
) -> HandwrittenNumbers:
    X, y = [], []
    for _ in range(count):
        length = int(rng.integers(5, 13))
        labels = [int(rng.integers(10))]
        while len(labels) < length:
            step = rng.choice([1, 2, int(rng.integers(10))], p=[0.7, 0.2, 0.1])
            labels.append(int(labels[-1] + step) % 10)
        images = pixels[[int(rng.choice(by_digit[d])) for d in labels]]
        X.append(images + noise * rng.standard_normal(images.shape))
        y.append(labels)
    return HandwrittenNumbers(X, y)
