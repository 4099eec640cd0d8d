"""Exact log Z, marginals, best labelings and losses of graphs, as PyTorch functions.

Kernels on the CPU answer in float64, example by example. Derivatives of gradients, torch.func
and torch.export use batched variable elimination, whose operations PyTorch records.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cliquewise.errors import DataError, UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles.results import MapResult
from cliquewise.ragged import Ints
from cliquewise.torch import _elimination
from cliquewise.torch._transforms import (
    check_plain_call,
    graph_break,
    is_exporting,
    is_transformed,
    read_constant,
)
from cliquewise.torch.losses import check_loss, reduce
from cliquewise.torch.smoothing import check_gamma, l2_smoothed_max

Labels = NDArray[np.int64]


def _check_potentials(structure: Structure, potentials: Tensor) -> tuple[Tensor, torch.dtype]:
    """Return potentials as float64 rows (B, n), and the type of the results."""
    if not isinstance(potentials, Tensor):
        raise DataError(f"potentials must be a tensor, not {type(potentials).__name__}")
    size = int(structure.table_offsets[-1])
    if potentials.dim() not in (1, 2) or potentials.shape[-1] != size:
        raise DataError(
            f"potentials must have shape ({size},) or (B, {size}), the entries of all tables "
            f"of the structure, not {tuple(potentials.shape)}"
        )
    if not potentials.is_floating_point():
        raise DataError(
            f"potentials must be floating-point numbers, not {potentials.dtype}: use "
            "potentials.float()"
        )
    kind = torch.promote_types(potentials.dtype, torch.float32)
    return potentials.double().reshape(potentials.shape[:-1].numel(), size), kind


def _graphs(structure: Structure, rows: Tensor) -> list[FactorGraph]:
    arrays = rows.detach().cpu().numpy()
    return [FactorGraph.from_structure(structure, row) for row in arrays]


def _evaluate(structure: Structure, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return log Z (B,) and factor marginals (B, n), by the kernels."""
    log_z, marginals = np.empty(len(rows)), np.empty(tuple(rows.shape))
    for b, graph in enumerate(_graphs(structure, rows)):
        answer = graph.marginals(seconds=math.inf)
        if not answer.exact:
            raise UnsupportedError(
                f"the method {answer.method!r} is not exact on this graph; differentiable "
                "functions of graphs need a graph of small treewidth"
            )
        log_z[b], marginals[b] = answer.log_z, answer.factors.flat
    return (
        torch.from_numpy(log_z).to(rows.device),
        torch.from_numpy(marginals).to(rows.device),
    )


def _recorded_marginals(structure: Structure, rows: Tensor, weights: Tensor) -> Tensor:
    """Return the gradient of the weighted sum of log Z, as recorded operations."""
    with torch.enable_grad():
        leaf = rows.view_as(rows) if rows.requires_grad else rows.detach().requires_grad_()
        value = _elimination.log_partition(structure, leaf)
        (found,) = torch.autograd.grad(value, leaf, weights, create_graph=True)
    return found


class _GraphLogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, structure: Structure) -> Tensor:
        log_z, marginals = _evaluate(structure, rows)
        ctx.structure = structure
        ctx.save_for_backward(rows, marginals)
        return log_z

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        rows, marginals = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _recorded_marginals(ctx.structure, rows, grad), None
        return marginals * grad.unsqueeze(-1), None


class _GraphMarginals(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, structure: Structure) -> Tensor:
        ctx.structure = structure
        ctx.save_for_backward(rows)
        return _evaluate(structure, rows)[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            leaf = rows.view_as(rows) if rows.requires_grad else rows.detach().requires_grad_()
            found = _recorded_marginals(ctx.structure, leaf, rows.new_ones(len(rows)))
            (own,) = torch.autograd.grad(found, leaf, grad, create_graph=again)
        return own, None


@graph_break
def graph_log_partition(structure: Structure, potentials: Tensor) -> Tensor:
    """Compute the log partition function of a graph of small treewidth, such as a tree.

    Parameters
    ----------
    structure : Structure
        Variables and scopes, shared by all examples: ``graph.structure``, or
        ``cliquewise.Structure(cardinalities, scopes)``.
    potentials : Tensor of shape (n,) or (B, n)
        Log-potentials: the flattened tables of all factors, one after the other; processed in
        float64.

    Returns
    -------
    Tensor of shape () or (B,)
        The gradient is the factor marginals; all higher derivatives exist.

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
    rows, kind = _check_potentials(structure, potentials)
    return _log_partition(structure, rows).view(potentials.shape[:-1]).to(kind)


def _log_partition(structure: Structure, rows: Tensor) -> Tensor:
    if is_transformed():
        return _elimination.log_partition(structure, rows)
    return _GraphLogPartition.apply(rows, structure)


@graph_break
def graph_marginals(structure: Structure, potentials: Tensor) -> Tensor:
    """Compute the factor marginals of a graph of small treewidth; differentiable.

    Parameters
    ----------
    structure, potentials
        As in :func:`~cliquewise.torch.graph_log_partition`.

    Returns
    -------
    Tensor of shape (n,) or (B, n)
        The probability of every entry of every table.

    Examples
    --------
    >>> import torch
    >>> import cliquewise as cw
    >>> coin = cw.Structure([2], [(0,)])
    >>> graph_marginals(coin, torch.tensor([0.0, 1.0]))
    tensor([0.2689, 0.7311])
    """
    rows, kind = _check_potentials(structure, potentials)
    if is_transformed():
        found = _elimination.marginals(structure, rows)
    else:
        found = _GraphMarginals.apply(rows, structure)
    return found.view(potentials.shape).to(kind)


def _entries(structure: Structure, labels: Labels) -> Ints:
    """Return the entries of the flat tables that each labeling selects, (rows, F)."""
    picked = []
    for f in range(structure.n_factors):
        scope, shape = structure.scope(f), structure.shape(f)
        at = np.ravel_multi_index(tuple(labels[:, scope].T), shape) if len(scope) else 0
        picked.append(structure.table_offsets[f] + np.broadcast_to(at, len(labels)))
    return np.stack(picked, 1) if picked else np.empty((len(labels), 0), dtype=np.int64)


def _score(structure: Structure, potentials: Tensor, labels: Labels) -> Tensor:
    """Return the scores of one labeling per row of potentials (B, n); differentiable."""
    at = torch.as_tensor(_entries(structure, np.asarray(labels)), device=potentials.device)
    return potentials.gather(1, at).sum(1)


@graph_break
def graph_map(
    structure: Structure, potentials: Tensor, *, seconds: float | None = None
) -> tuple[Tensor, Tensor]:
    """Compute the best score and labeling of graphs, and prove that they are the best.

    Parameters
    ----------
    structure, potentials
        As in :func:`~cliquewise.torch.graph_log_partition`.
    seconds : float, optional
        Time limit per example.

    Returns
    -------
    score : Tensor of shape () or (B,)
        Differentiable.
    labels : Tensor of shape (V,) or (B, V)

    Raises
    ------
    UnsupportedError
        If a labeling is not proven best, because the graph is too hard or the time too short.

    Examples
    --------
    >>> import torch
    >>> import cliquewise as cw
    >>> pair = cw.Structure([2, 2], [(0,), (0, 1)])
    >>> score, labels = graph_map(pair, torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0, 2.0]))
    >>> score.item(), labels.tolist()
    (3.0, [1, 1])
    """
    rows, kind = _check_potentials(structure, potentials)
    score, labels = _map(structure, rows, seconds)
    lead = potentials.shape[:-1]
    found = torch.from_numpy(labels).view(*lead, labels.shape[1]).to(potentials.device)
    return score.view(lead).to(kind), found


def _map(structure: Structure, rows: Tensor, seconds: float | None) -> tuple[Tensor, Labels]:
    """Return best scores (B,), differentiable, and proven best labelings (B, V)."""
    check_plain_call("the best labeling of a graph", "the module that computes the potentials")
    options: dict[str, Any] = {} if seconds is None else {"seconds": seconds}
    answers = [graph.map(**options) for graph in _graphs(structure, rows)]
    for b, answer in enumerate(answers):
        _check_proven(answer, b, seconds)
    found = [answer.labels for answer in answers]
    labels = np.array(found, dtype=np.int64).reshape(len(rows), structure.n_variables)
    return _score(structure, rows, labels), labels


def _check_proven(answer: MapResult, example: int, seconds: float | None) -> None:
    """Raise unless a labeling is proven best."""
    if not answer.exact:
        hint = "" if seconds is None else f" or more than seconds={seconds:g}"
        raise UnsupportedError(
            f"the best labeling found for example {example} is not proven best (its score may be "
            f"too low by {answer.upper_bound - answer.score:.3g}); exact losses need a graph of "
            f"smaller treewidth{hint}"
        )


def _truth(structure: Structure, labels: Tensor, size: int) -> Labels:
    """Return checked true labels, one row per example."""
    if is_exporting():
        raise UnsupportedError(
            "losses of graphs cannot be exported; export the module that computes the potentials"
        )
    n, array = structure.n_variables, read_constant("labels of graphs", labels)
    if array.shape not in ((size, n), (n,)) or array.size != size * n:
        raise DataError(f"labels must have shape {(size, n)}, not {array.shape}")
    if labels.dtype == torch.bool or labels.is_floating_point() or labels.is_complex():
        raise DataError(f"labels must be integers, not {labels.dtype}: use labels.long()")
    truth: Labels = array.astype(np.int64).reshape(size, n)
    wrong = (truth < 0) | (truth >= structure.cardinalities)
    if wrong.any():
        row, v = (int(x[0]) for x in np.nonzero(wrong))
        raise DataError(
            f"labels[{row}, {v}] = {truth[row, v]}, but variable {v} has the states "
            f"0..{structure.cardinalities[v] - 1}"
        )
    return truth


def _node_factors(structure: Structure) -> Ints:
    """Return the first unary factor of every variable."""
    where = np.full(structure.n_variables, -1)
    for f in np.flatnonzero(structure.orders == 1)[::-1]:
        where[structure.scope(f)[0]] = f
    if (where < 0).any():
        v = int(np.argmin(where))
        raise UnsupportedError(
            f"variable {v} has no unary factor to add its cost to; add the scope ({v},)"
        )
    return where


@graph_break
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
    seconds: float | None = None,
) -> Tensor:
    """Compute a structured loss of graphs; the losses of :func:`cliquewise.torch.chain_loss`.

    Parameters
    ----------
    loss : {"log", "hinge", "smooth_hinge", "softmax_margin"}
    structure, potentials
        As in :func:`~cliquewise.torch.graph_log_partition`.
    labels : integer Tensor of shape (V,) or (B, V)
        The true labels.
    cost : float, default=1.0
        The cost of each wrong label, for all losses except ``log``. Every variable needs a unary
        factor, to which it is added.
    gamma, k, reduction
        As in :func:`cliquewise.torch.chain_loss`.
    seconds : float, optional
        Time limit per example for ``hinge``, see :func:`graph_map`.

    Raises
    ------
    UnsupportedError
        If inference is not exact.

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
    rows, kind = _check_potentials(structure, potentials)
    truth = _truth(structure, labels, len(rows))
    true_score = _score(structure, rows, truth)
    if loss == "log":
        return reduce(_log_partition(structure, rows) - true_score, reduction).to(kind)
    costs = np.zeros(tuple(rows.shape))
    for v, f in enumerate(_node_factors(structure)):
        first, last = structure.table_offsets[f], structure.table_offsets[f + 1]
        costs[:, first:last] = cost
        costs[np.arange(len(rows)), first + truth[:, v]] = 0.0
    padded = rows + torch.as_tensor(costs, device=rows.device)
    if loss == "hinge":
        worst = _map(structure, padded, seconds)[0]
    elif loss == "softmax_margin":
        worst = gamma * _log_partition(structure, padded / gamma)
    else:
        worst = _l2_max(structure, padded, gamma, k)
    return reduce(worst - true_score, reduction).to(kind)


def _l2_max(structure: Structure, rows: Tensor, gamma: float, k: int) -> Tensor:
    """Return the l2-smoothed maxima, from the k best labelings of every example."""
    check_plain_call("the best labelings of a graph", "the module that computes the potentials")
    values = []
    for b, (tensor, graph) in enumerate(zip(rows, _graphs(structure, rows))):
        best = graph.top_k(k)
        for answer in best:
            _check_proven(answer, b, None)
        labels: Labels = np.array([answer.labels for answer in best])
        found = _score(structure, tensor.expand(len(labels), -1), labels)
        values.append(l2_smoothed_max(found, gamma))
    return torch.stack(values) if values else rows.sum(1)
