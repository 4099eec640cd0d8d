"""Digit scenes: find the given digit on a canvas with other digits' fragments and noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

SIDE, DIGIT, STRIDE = 24, 8, 2
WANTED = 3


@dataclass(frozen=True)
class Task:
    """How hard it is.

    ``wrong`` is the share of training scenes whose target is another window; ``frozen`` takes the
    network of the paper, one hidden layer on features that are not trained.
    """

    clutter: int = 6
    noise: float = 0.1
    wrong: float = 0.0
    frozen: bool = False


def windows() -> np.ndarray:
    """Corners (row, column) of the candidate windows."""
    at = np.arange(0, SIDE - DIGIT + 1, STRIDE)
    return np.array([(r, c) for r in at for c in at])


def overlap(corners: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Intersection over union of windows with the true one."""
    near = np.maximum(DIGIT - np.abs(corners - truth), 0)
    inside = near[:, 0] * near[:, 1]
    return inside / (2 * DIGIT**2 - inside)


def make_scenes(
    n: int, seed: int, task: Task, test: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images (n, 1, 24, 24), index of the best window (n,), costs 1 - IoU (n, windows)."""
    rng = np.random.default_rng(seed)
    digits = load_digits()
    half = len(digits.images) // 2
    part = slice(half, None) if test else slice(None, half)
    images, labels = digits.images[part] / 16.0, digits.target[part]
    wanted, others = images[labels == WANTED], images[labels != WANTED]
    corners = windows()
    scenes = np.zeros((n, SIDE, SIDE))
    target, costs = np.zeros(n, dtype=int), np.zeros((n, len(corners)))
    for i in range(n):
        place = rng.integers(0, SIDE - DIGIT + 1, 2)
        for _ in range(task.clutter):
            r, c = rng.integers(0, SIDE - DIGIT + 1, 2)
            piece = others[rng.integers(len(others))] * rng.uniform(0.5, 1.0)
            scenes[i, r : r + DIGIT, c : c + DIGIT] = np.maximum(
                scenes[i, r : r + DIGIT, c : c + DIGIT], piece
            )
        r, c = place
        scenes[i, r : r + DIGIT, c : c + DIGIT] = wanted[rng.integers(len(wanted))]
        if not test and rng.random() < task.wrong:
            place = rng.integers(0, SIDE - DIGIT + 1, 2)
        shares = overlap(corners, place)
        target[i], costs[i] = shares.argmax(), 1.0 - shares / shares.max()
    scenes += task.noise * rng.normal(size=scenes.shape)
    as_float = torch.float32
    return (
        torch.tensor(scenes[:, None], dtype=as_float),
        torch.tensor(target),
        torch.tensor(costs, dtype=as_float),
    )


def make_network(task: Task, channels: int = 12) -> nn.Module:
    """A small convolutional score of every window, with ELU as in the paper."""
    first = nn.Sequential(nn.Conv2d(1, channels, 3, stride=STRIDE, padding=1), nn.ELU())
    if task.frozen:  # w1 mixes the features of a place, w2 the places of a window
        first.requires_grad_(False)
        hidden = nn.Conv2d(channels, 6, 1)
    else:
        hidden = nn.Conv2d(channels, channels, 3, padding=1)
    return nn.Sequential(
        first, hidden, nn.ELU(), nn.Conv2d(hidden.out_channels, 1, DIGIT // STRIDE), nn.Flatten()
    )
