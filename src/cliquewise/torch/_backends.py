"""The choice of the backend that computes an answer about chains."""

from __future__ import annotations

import warnings
from functools import cache
from typing import NamedTuple

from cliquewise.errors import UnsupportedError
from cliquewise.torch._scores import Scores
from cliquewise.torch._transforms import is_transformed

#: Values of ``backend=``.
BACKENDS = ("auto", "numba", "plain", "triton")
#: In order of preference.
_PREFERRED = ("triton", "numba", "plain")
#: On the CPU, batched matrix products compute sums faster than the compiled kernels from this
#: many labels and chains on (measured on two cores). Maxima are always faster compiled.
PLAIN_FROM_LABELS, PLAIN_FROM_CHAINS = 200, 8


class BackendChoice(NamedTuple):
    """A backend, and the reasons against those that were preferred to it."""

    name: str
    rejected: dict[str, str]


@cache
def is_installed(module: str) -> bool:
    """Return whether a module can be imported, without importing it."""
    from importlib.util import find_spec

    return find_spec(module) is not None


def choose_backend(scores: Scores, backend: str = "auto", question: str = "sum") -> BackendChoice:
    """Choose the backend for a question about chains.

    Parameters
    ----------
    scores : Scores
    backend : {"auto", "numba", "plain", "triton"}
        A name is checked instead of chosen.
    question : {"sum", "maximum", "covariance"}
        log Z and marginals, the best labeling, or second derivatives.

    Examples
    --------
    >>> import torch
    >>> from cliquewise.torch._scores import make_scores
    >>> scores = make_scores(torch.zeros(8, 2, 200), torch.zeros(200, 200))
    >>> choose_backend(scores, question="maximum").name
    'numba'
    >>> choose_backend(scores).rejected["numba"]
    'is slower than matrix products from 200 labels and 8 chains on'
    """
    if backend == "compiled":
        warnings.warn(
            "backend='compiled' is now called backend='numba'", FutureWarning, stacklevel=3
        )
        backend = "numba"
    if backend not in BACKENDS:
        raise UnsupportedError(f"unknown backend {backend!r}; choose from {', '.join(BACKENDS)}")
    if backend != "auto":
        reason = _unsupported(backend, scores, question)
        if reason is not None:
            raise UnsupportedError(f"backend {backend!r} {reason}; use backend='plain'")
        return BackendChoice(backend, {})
    rejected: dict[str, str] = {}
    for name in _PREFERRED:
        reason = _unsupported(name, scores, question) or _slower(name, scores, question)
        if reason is None:
            return BackendChoice(name, rejected)
        rejected[name] = reason
    raise AssertionError("the plain backend supports everything")


def _unsupported(name: str, scores: Scores, question: str) -> str | None:
    """Return why a backend cannot answer, as the end of a sentence; None if it can."""
    if name == "plain":
        return None
    if not is_installed(name):
        return f"needs the package {name}"
    if is_transformed():
        return "does not work under torch.func, forward-mode differentiation or torch.export"
    device = scores.nodes.device.type
    if name == "numba":
        return None if device == "cpu" else f"works on the CPU, not on {device!r}"
    if question == "covariance":
        return "has no kernel for second derivatives"
    from cliquewise.torch import _triton

    return _triton.refuses(scores)


def _slower(name: str, scores: Scores, question: str) -> str | None:
    """Return why another backend is faster; None if this one is the fastest."""
    if name == "triton" and scores.nodes.device.type != "cuda":
        return "is only fast on a GPU"  # Triton's interpreter runs on a CPU, for tests
    chains, _, labels = scores.nodes.shape
    if (
        name == "numba"
        and question == "sum"
        and labels >= PLAIN_FROM_LABELS
        and chains >= PLAIN_FROM_CHAINS
    ):
        return (
            f"is slower than matrix products from {PLAIN_FROM_LABELS} labels and "
            f"{PLAIN_FROM_CHAINS} chains on"
        )
    return None
