"""Ctrl-C in a kernel raises KeyboardInterrupt."""

from __future__ import annotations

import signal
import time

import numpy as np
import pytest

from cliquewise._kernels import STOCK_NUMBA, kernel


@kernel
def fill(n):
    """Return two arrays after some work."""
    out = np.zeros(1000)
    for i in range(n):
        out[i % 1000] += 1.0
    return out, out.astype(np.int64)


@pytest.mark.skipif(STOCK_NUMBA, reason="stock dispatchers raise SystemError")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers on this system")
def test_signal_while_a_kernel_returns_arrays_raises_what_its_handler_raised():
    fill(1)
    usual = signal.signal(signal.SIGALRM, signal.default_int_handler)
    interrupts = 0
    try:
        end = time.monotonic() + 20.0
        while interrupts < 50 and time.monotonic() < end:
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-3)
                for _ in range(1000):
                    fill(300_000)
            except KeyboardInterrupt:
                interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
    assert interrupts == 50
