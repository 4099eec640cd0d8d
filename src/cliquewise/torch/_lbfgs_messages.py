"""Layout of the two vectors that the host and the L-BFGS kernels exchange."""

from __future__ import annotations

#: Whether the last trial point is accepted, and the length of its step.
ACCEPT, LAST = 0, 1
#: Length of the step to try; slot of the last correction (-1: none).
STEP, SLOT = 2, 3
#: The gradient is SHARE times the sums over all chains plus LAM times the weights.
SHARE, LAM = 4, 5
#: Coefficients of the new direction: of the gradient, and of stored steps and gradient changes.
GRADIENT, COEFFICIENTS = 6, 7

#: Dot products measured in addition to those with steps and gradient changes.
NUMBERS = ("ww", "raw", "gg", "gd", "yd", "yy", "yg")
