"""Any graph that the package can do exactly, example by example, as PyTorch functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cliquewise.errors import DataError, UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.torch.losses import check_loss, reduce
from cliquewise.torch.smoothing import check_gamma, l2_smoothed_max


def _rows(structure: Structure, potentials: Tensor) -> Any:
    """Potentials as float64 rows, checked."""
    size = int(structure.table_offsets[-1])
    if potentials.dim() not in (1, 2) or potentials.shape[-1] != size:
        raise DataError(
            f"potentials must have shape ({size},) or (B, {size}), the entries of all tables "
            f"of the structure, not {tuple(potentials.shape)}"
        )
    rows = potentials.detach().to("cpu", torch.float64)
    return rows.reshape(potentials.shape[:-1].numel(), size).numpy()


class _GraphLogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, potentials: Tensor, structure: Structure) -> Tensor:
        values, marginals = [], []
        for row in _rows(structure, potentials):
            answer = FactorGraph.from_structure(structure, row).marginals(seconds=math.inf)
            if not answer.exact:
                raise UnsupportedError(
                    f"the method {answer.method!r} is not exact on this graph; "
                    "differentiable oracles need a graph of small treewidth"
                )
            values.append(answer.log_z)
            marginals.append(answer.factors.flat)
        like: dict[str, Any] = {"dtype": potentials.dtype, "device": potentials.device}
        kept = torch.as_tensor(np.array(marginals), **like).view(potentials.shape)
        ctx.save_for_backward(kept)
        return torch.tensor(values, **like).view(potentials.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (marginals,) = ctx.saved_tensors
        return marginals * grad.unsqueeze(-1), None


def graph_log_partition(structure: Structure, potentials: Tensor) -> Tensor:
    """Log partition function of a tree, or of any graph of small treewidth.

    Parameters
    ----------
    structure : Structure
        Variables and scopes, shared by all examples: ``graph.structure``, or
        ``cliquewise.Structure(cardinalities, scopes)``.
    potentials : Tensor of shape (n,) or (B, n)
        Log-potentials: the tables of all factors, flattened, one after the other. The work is
        done in float64 on the CPU, example by example.

    Returns
    -------
    Tensor of shape () or (B,)
        Its gradient is the factor marginals.

    Examples
    --------
    >>> import torch
    >>> import cliquewise as cw
    >>> star = cw.Structure([2, 2, 2, 2], [(0, 1), (0, 2), (0, 3)])
    >>> potentials = torch.zeros(12, dtype=torch.float64, requires_grad=True)
    >>> value = graph_log_partition(star, potentials)
    >>> round(value.exp().item())
    16
    >>> value.backward()
    >>> potentials.grad[:4]
    tensor([0.2500, 0.2500, 0.2500, 0.2500], dtype=torch.float64)
    """
    return _GraphLogPartition.apply(potentials, structure)


def _entries(structure: Structure, labels: Any) -> Any:
    """For every labeling (row), the entries of the flat tables that it picks, (rows, F)."""
    picked = []
    for f in range(structure.n_factors):
        scope, shape = structure.scope(f), structure.shape(f)
        at = np.ravel_multi_index(tuple(labels[:, scope].T), shape) if len(scope) else 0
        picked.append(structure.table_offsets[f] + np.broadcast_to(at, len(labels)))
    return np.stack(picked, 1) if picked else np.empty((len(labels), 0), dtype=np.int64)


def _score(structure: Structure, potentials: Tensor, labels: Any) -> Tensor:
    """Scores of one labeling per row of potentials (B, n); differentiable."""
    at = torch.as_tensor(_entries(structure, np.asarray(labels)), device=potentials.device)
    return potentials.gather(1, at).sum(1)


def graph_map(structure: Structure, potentials: Tensor) -> tuple[Tensor, Tensor]:
    """Best score and labeling of graphs.

    Arguments are those of :func:`~cliquewise.torch.graph_log_partition`. The score is
    differentiable.

    Examples
    --------
    >>> import torch
    >>> import cliquewise as cw
    >>> pair = cw.Structure([2, 2], [(0,), (0, 1)])
    >>> score, labels = graph_map(pair, torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0, 2.0]))
    >>> score.item(), labels.tolist()
    (3.0, [1, 1])
    """
    rows = _as_rows(potentials)
    graphs = (FactorGraph.from_structure(structure, row) for row in _rows(structure, potentials))
    found = [graph.map().labels for graph in graphs]
    labels = np.array(found, dtype=np.int64).reshape(len(rows), structure.n_variables)
    lead = potentials.shape[:-1]
    score = _score(structure, rows, labels).view(lead)
    return score, torch.from_numpy(labels).view(*lead, labels.shape[1]).to(potentials.device)


def _as_rows(potentials: Tensor) -> Tensor:
    return potentials.reshape(potentials.shape[:-1].numel(), potentials.shape[-1])


def _truth(structure: Structure, labels: Tensor, size: int) -> Any:
    """True labels, one row per example, checked."""
    n = structure.n_variables
    if labels.shape not in ((size, n), (n,)) or labels.numel() != size * n:
        raise DataError(f"labels must have shape {(size, n)}, not {tuple(labels.shape)}")
    if labels.dtype == torch.bool or labels.is_floating_point() or labels.is_complex():
        raise DataError(f"labels must be integers, not {labels.dtype}: take labels.long()")
    truth = labels.reshape(size, n).cpu().numpy()
    wrong = (truth < 0) | (truth >= structure.cardinalities)
    if wrong.any():
        row, v = (int(x[0]) for x in np.nonzero(wrong))
        raise DataError(
            f"labels[{row}, {v}] = {truth[row, v]}, but variable {v} has the states "
            f"0..{structure.cardinalities[v] - 1}"
        )
    return truth


def _node_factors(structure: Structure) -> Any:
    """The first unary factor of every variable."""
    where = np.full(structure.n_variables, -1)
    for f in np.flatnonzero(structure.orders == 1)[::-1]:
        where[structure.scope(f)[0]] = f
    if (where < 0).any():
        v = int(np.argmin(where))
        raise UnsupportedError(
            f"variable {v} has no factor of its own to carry its cost; add the scope ({v},)"
        )
    return where


def graph_loss(
    loss: str,
    structure: Structure,
    potentials: Tensor,
    labels: Tensor,
    *,
    cost: float = 1.0,
    gamma: float = 1.0,
    k: int = 5,
    reduction: str = "mean",
) -> Tensor:
    """A structured loss of graphs; the losses of :func:`cliquewise.torch.chain_loss`.

    ``labels`` (B, V) are the true ones. Losses with a (Hamming) cost need a factor of its own
    for every variable.

    Examples
    --------
    >>> import torch
    >>> import cliquewise as cw
    >>> pair = cw.Structure([2, 2], [(0,), (1,), (0, 1)])
    >>> graph_loss("hinge", pair, torch.zeros(1, 8), torch.tensor([[0, 1]]))
    tensor(2.)
    """
    check_loss(loss)
    check_gamma(gamma)
    _rows(structure, potentials)  # says what is wrong with the shape
    rows = _as_rows(potentials)
    truth = _truth(structure, labels, len(rows))
    true_score = _score(structure, rows, truth)
    if loss == "log":
        return reduce(graph_log_partition(structure, rows) - true_score, reduction)
    costs = np.zeros(tuple(rows.shape))
    for v, f in enumerate(_node_factors(structure)):
        first, last = structure.table_offsets[f], structure.table_offsets[f + 1]
        costs[:, first:last] = cost
        costs[np.arange(len(rows)), first + truth[:, v]] = 0.0
    padded = rows + torch.as_tensor(costs, dtype=rows.dtype, device=rows.device)
    if loss == "hinge":
        worst = graph_map(structure, padded)[0]
    elif loss == "softmax_margin":
        worst = gamma * graph_log_partition(structure, padded / gamma)
    else:
        worst = _l2_max(structure, padded, gamma, k)
    return reduce(worst - true_score, reduction)


def _l2_max(structure: Structure, rows: Tensor, gamma: float, k: int) -> Tensor:
    """The l2-smoothed maximum from the k best labelings."""
    values = []
    for tensor, row in zip(rows, _rows(structure, rows)):
        best = FactorGraph.from_structure(structure, row).top_k(k)
        labels = np.array([answer.labels for answer in best])
        found = _score(structure, tensor.expand(len(labels), -1), labels)
        values.append(l2_smoothed_max(found, gamma))
    return torch.stack(values) if values else rows.sum(1)
