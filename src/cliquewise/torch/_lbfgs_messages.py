"""What the host tells the kernels of L-BFGS, and what they tell the host: places in two vectors."""

from __future__ import annotations

#: Whether the weights tried last are the new point; the length of the step that led there.
ACCEPT, LAST = 0, 1
#: Length of the step to try now; where the correction of the last step goes (-1: nowhere).
STEP, SLOT = 2, 3
#: The gradient is SHARE times the sums over all chains plus LAM times the weights.
SHARE, LAM = 4, 5
#: The new direction: a multiple of the gradient, and of the steps and changes that are kept.
GRADIENT, COEFFICIENTS = 6, 7

#: Dot products that are measured beside those with the steps and changes.
NUMBERS = ("ww", "raw", "gg", "gd", "yd", "yy", "yg")
