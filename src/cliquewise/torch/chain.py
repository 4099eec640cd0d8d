"""log Z, marginals and best labelings of batches of chains, with analytic gradients.

The gradient of log Z is the marginals, which the same passes compute, so autograd records no
operations of the passes. The Hessian of log Z times a vector is one more pair of passes.
`_backends.choose_backend` selects the code: numba kernels or batched matrix products on the
CPU, Triton kernels on a GPU, and plain PyTorch operations elsewhere and under torch.func.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from cliquewise.torch import _plain
from cliquewise.torch import _scores as checks
from cliquewise.torch._backends import choose_backend
from cliquewise.torch._scores import Scores, make_scores, remove_gaps, remove_untagged
from cliquewise.torch._transforms import graph_break, is_transformed

Gradients = tuple[Tensor | None, ...]


class _LogLikelihood(torch.autograd.Function):
    """log Z of every chain, or the log-likelihood of tags."""

    @staticmethod
    def forward(
        ctx: Any, nodes: Tensor, trans: Tensor, begin: Tensor | None, end: Tensor | None,
        mask: Tensor | None, tags: Tensor | None, backend: str, reduction: str,
    ) -> Tensor:  # fmt: skip
        scores = Scores(nodes, trans, begin, end, mask)
        needs_gradient = any(ctx.needs_input_grad[:4])
        if backend == "triton":
            from cliquewise.torch import _triton

            value, saved = _triton.evaluate(scores, tags, needs_gradient)
        else:
            value, saved = _evaluate(scores, backend, needs_gradient)
            if tags is not None:
                log_z, value = value, checks.path_score(scores, tags) - value
                _check_feasible(log_z, value)
        ctx.scale = 1.0
        if needs_gradient:
            ctx.save_for_backward(nodes, trans, begin, end, mask, tags, *saved)
            ctx.backend = backend
        # Reducing here is cheaper than recording one more operation.
        if reduction == "mean":
            ctx.scale = 1.0 / max(len(value), 1)
            return value.mean()
        return value.sum() if reduction == "sum" else value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        nodes, trans, begin, end, mask, tags, *saved = ctx.saved_tensors
        scores = Scores(nodes, trans, begin, end, mask)
        again = torch.is_grad_enabled()
        if ctx.backend == "triton" and not again:
            from cliquewise.torch import _triton

            sign = 1.0 if tags is None else -1.0
            found = _triton.gradient(scores, tuple(saved), grad, sign * ctx.scale)
            return (*found, None, None, None, None)
        grad = (grad * ctx.scale).expand(len(nodes))
        model: Gradients
        if ctx.backend == "triton":
            return (*_recorded_gradient(scores, tags, grad), None, None, None, None)
        if again:
            log_z = grad.detach()  # not used
            inputs = (*scores, grad, ctx.backend, log_z, *saved)
            model = _WeightedMarginals.apply(*inputs)[1:]
        else:
            model = _weighted_marginals(scores, grad, ctx.backend, tuple(saved))
        if tags is not None:
            model = _subtract(_plain.gold_gradient(scores, tags, grad), model)
        return (*model, None, None, None, None)


class _WeightedMarginals(torch.autograd.Function):
    """log Z of every chain, and the marginals of chain b times ``weights[b]``.

    The marginals are the gradient of the weighted sum of log Z. ``saved`` is the result of
    `_evaluate`.
    """

    @staticmethod
    def forward(
        ctx: Any, nodes: Tensor, trans: Tensor, begin: Tensor | None, end: Tensor | None,
        mask: Tensor | None, weights: Tensor, backend: str, log_z: Tensor, *saved: Tensor,
    ) -> Gradients:  # fmt: skip
        scores = Scores(nodes, trans, begin, end, mask)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(nodes, trans, begin, end, mask, weights, log_z, *saved)
        ctx.backend = backend
        # A copy: an input that is returned would be treated as changed in place.
        return log_z.clone(), *_weighted_marginals(scores, weights, backend, saved)

    @staticmethod
    def backward(ctx: Any, by_log_z: Tensor | None, *cotangents: Tensor | None) -> Gradients:
        *own, weights, log_z = ctx.saved_tensors[:7]
        saved, scores = ctx.saved_tensors[7:], Scores(*own)
        found: Gradients = (None,) * 4
        by_weights: Tensor | None = None
        if any(v is not None for v in cotangents):
            found, by_weights = _second_derivatives(scores, weights, cotangents)
        if by_log_z is not None:
            if torch.is_grad_enabled():
                more = _WeightedMarginals.apply(*own, by_log_z, ctx.backend, log_z, *saved)[1:]
            else:
                more = _weighted_marginals(scores, by_log_z, ctx.backend, saved)
            found = tuple(b if a is None else a + b for a, b in zip(found, more))
        return (*found, None, by_weights, *(None,) * (2 + len(saved)))


def _second_derivatives(
    scores: Scores, weights: Tensor, cotangents: Gradients
) -> tuple[Gradients, Tensor | None]:
    """Return the Hessian of the weighted log Z times the cotangents; and gradients of weights."""
    if torch.is_grad_enabled() or choose_backend(scores, question="covariance").name == "plain":

        def outputs(scores: Scores, weights: Tensor) -> Any:
            return _plain.log_domain(scores, weights)[1]

        by_scores, by_weights = _plain.pull_back(scores, weights, outputs, cotangents)
        return tuple(by_scores), by_weights
    from cliquewise.torch import _numba

    own = (
        v if z is None or v is not None else torch.zeros_like(z)
        for z, v in zip(scores[:4], cotangents)
    )
    nodes, trans, begin, end = own
    assert nodes is not None and trans is not None
    direction = Scores(nodes, trans, begin, end, scores.mask)
    means, found = _numba.covariances(scores, direction, weights)
    assert found is not None
    return found, means.to(weights.dtype)


def _evaluate(
    scores: Scores, backend: str, needs_gradient: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    if backend == "numba":
        from cliquewise.torch import _numba

        return _numba.evaluate(scores, needs_gradient)
    return _plain.evaluate(scores)


def _weighted_marginals(
    scores: Scores, weights: Tensor, backend: str, saved: tuple[Tensor, ...]
) -> Gradients:
    """Return weighted marginals from the result of `_evaluate`."""
    if backend == "numba":
        from cliquewise.torch import _numba

        return _numba.gradient(scores, saved, weights)
    return _plain.gradient(scores, weights)


def _subtract(left: Gradients, right: Gradients) -> Gradients:
    return tuple(None if a is None or b is None else a - b for a, b in zip(left, right))


def _check_feasible(log_z: Tensor, value: Tensor) -> None:
    """Raise if a likelihood is undefined because its chain has no possible labeling."""
    if bool(value.isnan().any()):
        never = log_z == -torch.inf
        if bool(never.any()) and value.device.type == "cpu":
            checks.raise_infeasible(int(never.nonzero()[0, 0]))


def _recorded_gradient(scores: Scores, tags: Tensor | None, grad: Tensor) -> Gradients:
    """Return the gradient of a weighted sum of log Z by recorded operations."""
    if tags is None:
        scores, gaps = remove_gaps(scores)
    else:
        scores, tags, gaps = remove_untagged(scores, tags)
    found = _plain.log_domain(scores, grad)[1]
    assert found is not None
    own: Gradients = found
    if tags is not None:
        own = _subtract(_plain.gold_gradient(scores, tags, grad), found)
    nodes, trans, begin, end = own
    assert nodes is not None and trans is not None
    trans = trans if scores.is_shared else gaps.restore_tables(trans)
    return gaps.restore(nodes), trans, begin, end


def log_likelihood(
    scores: Scores,
    tags: Tensor | None = None,
    *,
    backend: str = "auto",
    reduction: str = "none",
) -> Tensor:
    """Return log Z of checked scores, or the log-likelihood of tags; (B,), or its sum or mean.

    Positions tagged -100 are left out.
    """
    if reduction == "mean":
        checks.check_nonempty(len(scores.nodes))
    chosen = choose_backend(scores, backend).name
    if chosen == "triton":
        # The kernels remove gaps and check tags themselves, so nothing waits for the GPU.
        if tags is not None:
            checks.check_tags(scores, tags)
            tags = tags.long()
    elif tags is None:
        scores, _ = remove_gaps(scores)
    else:
        scores, tags, _ = remove_untagged(scores, tags, wait=True)
    if not is_transformed():
        return _LogLikelihood.apply(*scores, tags, chosen, reduction)
    value, _ = _plain.log_domain(scores, None)
    if tags is not None:
        value = checks.path_score(scores, tags) - value
    if reduction == "mean":
        return value.mean()
    return value.sum() if reduction == "sum" else value


@graph_break
def log_partition(
    nodes: Tensor,
    transitions: Tensor,
    begin: Tensor | None = None,
    end: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    backend: str = "auto",
) -> Tensor:
    """Compute log Z, the log of the summed exponentiated scores of all labelings.

    Parameters
    ----------
    nodes : Tensor of shape (B, T, K)
        Scores of K labels at T positions of B chains. ``-inf`` forbids a label; NaN makes
        all results of its chain NaN. Half precision is converted to float32.
    transitions : Tensor of shape (K, K), (B, K, K) or (B, T - 1, K, K)
        Scores of (label, next label): shared, one table per chain, or one per chain and
        position. ``-inf`` forbids a transition.
    begin, end : Tensor of shape (K,) or (B, K), optional
        Scores of the first and the last label, shared or per chain.
    mask : bool Tensor of shape (B, T), optional
        True at existing positions, which may have gaps between them: the neighbor of a position
        is the next existing one. A table per position belongs to the position it leads to.
    backend : {"auto", "numba", "plain", "triton"}
        ``auto`` chooses the fastest one that supports the scores.

    Returns
    -------
    Tensor of shape (B,)
        ``-inf`` where no labeling is feasible. The gradient is the marginals; all higher
        derivatives exist.

    Examples
    --------
    >>> import torch
    >>> nodes = torch.zeros(1, 3, 2, dtype=torch.float64, requires_grad=True)
    >>> value = log_partition(nodes, torch.zeros(2, 2, dtype=torch.float64))
    >>> round(value.exp().item())
    8
    >>> value.sum().backward()
    >>> nodes.grad[0, 0]
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    scores = make_scores(nodes, transitions, begin, end, mask)
    return log_likelihood(scores, backend=backend)


class ChainMarginals(NamedTuple):
    """log Z (B,), node marginals (B, T, K) and edge marginals, summed or of every edge."""

    log_z: Tensor
    nodes: Tensor
    edges: Tensor


@graph_break
def marginals(
    nodes: Tensor,
    transitions: Tensor,
    begin: Tensor | None = None,
    end: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    backend: str = "auto",
) -> ChainMarginals:
    """Compute the probabilities of labels at every position, and of pairs of adjacent labels.

    Parameters are those of :func:`log_partition`. With shared transitions, ``edges`` (K, K) is
    the sum of the pair probabilities over positions and chains; otherwise it has the
    probabilities of every pair, (B, T - 1, K, K). The result is differentiable.

    Examples
    --------
    >>> import torch
    >>> result = marginals(torch.tensor([[[0.0, 1.0]]]), torch.zeros(2, 2))
    >>> result.nodes
    tensor([[[0.2689, 0.7311]]])
    """
    return marginals_of(make_scores(nodes, transitions, begin, end, mask), backend)


def marginals_of(scores: Scores, backend: str = "auto") -> ChainMarginals:
    """Compute `marginals` of checked scores."""
    weights = torch.ones(len(scores.nodes), dtype=scores.nodes.dtype, device=scores.nodes.device)
    chosen = choose_backend(scores, backend).name
    if chosen == "triton" and not scores.needs_gradient:
        from cliquewise.torch import _triton

        log_z, saved = _triton.evaluate(scores, None, True)
        by_nodes, by_trans, _, _ = _triton.gradient(scores, saved, weights, 1.0)
        return ChainMarginals(log_z, by_nodes, by_trans)
    closed, gaps = remove_gaps(scores)
    found: Gradients
    if is_transformed() or chosen == "triton":
        log_z, recorded = _plain.log_domain(closed, weights)
        assert recorded is not None
        found = recorded
    else:
        chosen = choose_backend(closed, chosen).name
        log_z, saved = _evaluate(closed, chosen, True)
        if scores.needs_gradient:
            own = (*closed, weights, chosen, log_z, *saved)
            log_z, *found = _WeightedMarginals.apply(*own)
        else:
            found = _weighted_marginals(closed, weights, chosen, saved)
    nodes, edges = found[:2]
    assert nodes is not None and edges is not None
    edges = edges if scores.is_shared else gaps.restore_tables(edges)
    return ChainMarginals(log_z, gaps.restore(nodes), edges)


@graph_break
def viterbi(
    nodes: Tensor,
    transitions: Tensor,
    begin: Tensor | None = None,
    end: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Compute the best score (B,) and labeling (B, T) of every chain.

    Parameters are those of :func:`log_partition`. The gradient of the score is the indicator of
    the labeling. Labels are 0 at masked positions.

    Examples
    --------
    >>> import torch
    >>> score, labels = viterbi(torch.tensor([[[0.0, 1.0], [3.0, 0.0]]]), torch.zeros(2, 2))
    >>> score.item(), labels.tolist()
    (4.0, [[1, 0]])
    """
    return viterbi_of(make_scores(nodes, transitions, begin, end, mask), backend)


def viterbi_of(scores: Scores, backend: str = "auto") -> tuple[Tensor, Tensor]:
    """Compute `viterbi` of checked scores."""
    if not scores.needs_gradient and not is_transformed():
        return decode(scores, backend)
    scores, gaps = remove_gaps(scores)
    value, labels = decode(scores, backend)
    exact = checks.path_score(scores, labels)
    # The value of the search, the gradient of the lookups.
    return torch.where(torch.isfinite(value), exact, value), gaps.restore_labels(labels)


def decode(scores: Scores, backend: str = "auto", keep_gaps: bool = True) -> tuple[Tensor, Tensor]:
    """Compute best scores and labelings without gradient.

    The labels are at their positions, or without ``keep_gaps`` at the front of their rows.
    """
    with torch.no_grad():
        chosen = choose_backend(scores, backend, "maximum").name
        if chosen == "triton":
            from cliquewise.torch import _triton

            return _triton.viterbi(scores, keep_gaps)
        scores, gaps = remove_gaps(scores)
        if chosen == "numba":
            from cliquewise.torch import _numba

            value, labels = _numba.viterbi(scores)
        else:
            value, labels = _plain.viterbi(scores)
        return value, gaps.restore_labels(labels) if keep_gaps else labels


@graph_break
def path_score(
    labels: Tensor,
    nodes: Tensor,
    transitions: Tensor,
    begin: Tensor | None = None,
    end: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Compute the scores (B,) of labelings (B, T); differentiable.

    Positions labeled -100 are left out, like masked positions.

    Examples
    --------
    >>> import torch
    >>> nodes = torch.tensor([[[0.0, 1.0], [3.0, 0.0]]])
    >>> path_score(torch.tensor([[1, 0]]), nodes, torch.zeros(2, 2))
    tensor([4.])
    """
    scores = make_scores(nodes, transitions, begin, end, mask)
    scores, labels, _ = remove_untagged(scores, labels)
    return checks.path_score(scores, labels)
