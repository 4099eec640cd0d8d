"""Deep structured prediction: differentiable oracles, layers, losses and solvers for PyTorch.

Needs the extra ``cliquewise[torch]``. Names are imported on first use.
"""

from __future__ import annotations

from cliquewise._lazy import lazy_attributes
from cliquewise.errors import MissingDependencyError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingDependencyError(
        "cliquewise.torch needs PyTorch; install it with: pip install 'cliquewise[torch]'"
    ) from error

_MODULES = {
    "log_partition": "chain",
    "marginals": "chain",
    "viterbi": "chain",
    "path_score": "chain",
    "top_k": "sampling",
    "sample": "sampling",
    "smoothed_max": "smoothing",
    "entropy": "information",
    "kl_divergence": "information",
    "cross_entropy": "information",
    "expectation": "information",
    "ChainCRF": "crf",
    "ChainDistribution": "distribution",
    "ViterbiDecoder": "decoder",
    "TokenClassifier": "tokens",
    "TokenOutput": "tokens",
    "first_pieces": "tokens",
    "chain_loss": "losses",
    "CandidateLoss": "losses",
    "MultiLabelCRF": "multilabel",
    "graph_log_partition": "graphs",
    "graph_map": "graphs",
    "graph_marginals": "graphs",
    "graph_loss": "graphs",
    "StructuredClassifier": "estimator",
    "DeepProblem": "problem",
    "ProxLinear": "prox_linear",
    "SGD": "stochastic",
    "Adam": "stochastic",
}

__all__ = [*_MODULES]

__getattr__, __dir__ = lazy_attributes("cliquewise.torch", _MODULES)
