"""Deep structured prediction: differentiable oracles, layers, losses and solvers for PyTorch.

Needs the extra ``cliquewise[torch]``. Names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import Any

from cliquewise.errors import MissingDependencyError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingDependencyError(
        "cliquewise.torch needs PyTorch; install it with: pip install 'cliquewise[torch]'"
    ) from error

_WHERE = {
    "log_partition": "chain",
    "marginals": "chain",
    "viterbi": "chain",
    "path_score": "chain",
    "top_k": "draws",
    "sample": "draws",
    "smoothed_max": "smoothing",
    "entropy": "smoothing",
    "kl_divergence": "smoothing",
    "ChainCRF": "crf",
    "ViterbiDecoder": "decoder",
    "TokenClassifier": "tokens",
    "TokenOutput": "tokens",
    "first_pieces": "tokens",
    "chain_loss": "losses",
    "CandidateLoss": "losses",
    "MultiLabelCRF": "multilabel",
    "graph_log_partition": "graphs",
    "graph_map": "graphs",
    "graph_loss": "graphs",
    "StructuredClassifier": "estimator",
    "DeepProblem": "problem",
    "ProxLinear": "prox_linear",
    "SGD": "stochastic",
    "Adam": "stochastic",
}

__all__ = [*_WHERE]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'cliquewise.torch' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"cliquewise.torch.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
