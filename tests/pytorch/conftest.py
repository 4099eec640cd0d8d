"""One thread for PyTorch: many small operations wait for threads that two workers share."""

from __future__ import annotations

try:
    import torch
except ImportError:  # the tests skip
    pass
else:
    torch.set_num_threads(1)
