"""Batched chain oracles as PyTorch functions with analytic gradients.

No graph is recorded through the scans: the gradient of log Z is the marginals, which the
same pass computes. On the CPU the package's compiled kernels work, or batched products of
matrices where these are quicker; on a GPU one Triton launch does the whole scan. Plain
PyTorch stands in wherever neither is available, with the same answers.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cliquewise.errors import UnsupportedError
from cliquewise.torch import _plain
from cliquewise.torch import _scores as scores_
from cliquewise.torch._scores import Scores, close, close_tagged, make_scores

#: What ``backend=`` may be.
BACKENDS = ("auto", "compiled", "plain", "triton")
#: On the CPU, products of matrices are quicker than the compiled kernels from here on (not
#: for maxima).
PLAIN_FROM_LABELS = 200


@cache
def _has(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None


def choose_backend(scores: Scores, backend: str = "auto") -> str:
    """The path that these scores take."""
    if backend not in BACKENDS:
        raise UnsupportedError(f"unknown backend {backend!r}; they are {', '.join(BACKENDS)}")
    device = scores.nodes.device.type
    if backend == "auto":
        if device == "cuda":
            from cliquewise.torch import _triton

            if _has("triton") and _triton.refuses(scores) is None:
                return "triton"
            return "plain"
        small = scores.nodes.shape[2] < PLAIN_FROM_LABELS or scores.nodes.shape[0] < 8
        return "compiled" if device == "cpu" and small and _has("numba") else "plain"
    if backend == "compiled" and device != "cpu":
        raise UnsupportedError(f"backend 'compiled' works on the CPU, not on {device!r}")
    if backend == "triton":
        from cliquewise.torch import _triton

        reason = _triton.refuses(scores) if _has("triton") else "needs the package triton"
        if reason is not None:
            raise UnsupportedError(f"backend 'triton' {reason}; take backend='plain'")
    return backend


class _ChainFunction(torch.autograd.Function):
    """log Z, or the log-likelihood of tags, of every chain."""

    @staticmethod
    def forward(
        ctx: Any, nodes: Tensor, trans: Tensor, begin: Tensor | None, end: Tensor | None,
        mask: Tensor | None, tags: Tensor | None, backend: str, reduction: str,
    ) -> Tensor:  # fmt: skip
        scores = Scores(nodes, trans, begin, end, mask)
        need = any(ctx.needs_input_grad[:4])
        if backend == "triton":
            from cliquewise.torch import _triton

            value, saved = _triton.evaluate(scores, tags, need)
        else:
            if backend == "compiled":
                from cliquewise.torch import _compiled

                value, saved = _compiled.evaluate(scores, need)
            else:
                value, saved = _plain.evaluate(scores)
            if tags is not None:
                value = scores_.path_score(scores, tags) - value
        ctx.scale = 1.0
        if need:
            ctx.save_for_backward(nodes, trans, begin, end, mask, tags, *saved)
            ctx.backend = backend
        # Here rather than by the caller, whose graph would cost more than the sum itself.
        if reduction == "mean":
            ctx.scale = 1.0 / max(len(value), 1)
            return value.mean()
        return value.sum() if reduction == "sum" else value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        nodes, trans, begin, end, mask, tags, *saved = ctx.saved_tensors
        scores = Scores(nodes, trans, begin, end, mask)
        if ctx.backend == "triton" and not torch.is_grad_enabled():
            from cliquewise.torch import _triton

            sign = 1.0 if tags is None else -1.0
            own = _triton.gradient(scores, tuple(saved), grad, sign * ctx.scale)
            return (*own, None, None, None, None)
        grad = (grad * ctx.scale).expand(len(nodes))
        if torch.is_grad_enabled():
            return (*_again(scores, tags, grad), None, None, None, None)
        if ctx.backend == "compiled":
            from cliquewise.torch import _compiled

            model = _compiled.gradient(scores, tuple(saved), grad)
        else:
            model = _plain.gradient(scores, grad)
        assert model is not None
        found = tuple(model)
        if tags is not None:
            gold = _plain.gold_gradient(scores, tags, grad)
            found = tuple(None if g is None or m is None else g - m for g, m in zip(gold, model))
        return (*found, None, None, None, None)


def _again(scores: Scores, tags: Tensor | None, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The gradient by operations that can be differentiated again."""
    if tags is None:
        scores, places = close(scores)
    else:
        scores, tags, places = close_tagged(scores, tags)
    found = _plain.log_domain(scores, grad)[1]
    assert found is not None
    if tags is not None:
        gold = _plain.gold_gradient(scores, tags, grad)
        found = _plain.Gradient(
            *(None if g is None or m is None else g - m for g, m in zip(gold, found))  # type: ignore[arg-type]
        )
    trans = found.trans if scores.is_shared else places.put_tables(found.trans)
    return places.put(found.nodes), trans, found.begin, found.end


def log_likelihood(
    scores: Scores,
    tags: Tensor | None = None,
    *,
    backend: str = "auto",
    reduction: str = "none",
) -> Tensor:
    """log Z of checked scores, or with tags their log-likelihood; (B,), or its sum or mean.

    Positions whose tag is -100 are left out.
    """
    chosen = choose_backend(scores, backend)
    if chosen == "triton":
        # The kernels close gaps, and look at tags, while they run: nobody waits for them.
        if tags is not None:
            scores_.check_tags(scores, tags)
            tags = tags.long()
    elif tags is None:
        scores, _ = close(scores)
    else:
        scores, tags, _ = close_tagged(scores, tags, wait=True)
    if reduction == "mean":
        scores_.check_examples(len(scores.nodes))
    return _ChainFunction.apply(*scores, tags, chosen, reduction)


def log_partition(
    nodes: Tensor,
    transitions: Tensor,
    begin: Tensor | None = None,
    end: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    backend: str = "auto",
) -> Tensor:
    """Log of the sum of exponentiated scores of all labelings, for every chain of a batch.

    Parameters
    ----------
    nodes : Tensor of shape (B, T, K)
        Scores of K labels at T positions of B chains; ``-inf`` forbids a label, and NaN makes
        every answer about its chain NaN. Float32 or float64; half precision is worked on in
        float32.
    transitions : Tensor of shape (K, K) or (B, T - 1, K, K)
        Scores of (label, next label), shared or one table per position; ``-inf`` forbids.
    begin, end : Tensor of shape (K,), optional
        Scores of the first and the last label of every chain.
    mask : bool Tensor of shape (B, T), optional
        True at the positions that exist. Gaps are closed: the neighbor of a position is the next
        one that exists, the table of transitions into a position counts whatever stands before
        it, and answers come back at the places of their positions.
    backend : {"auto", "compiled", "plain", "triton"}
        Which path to take; ``auto`` knows which is quickest.

    Returns
    -------
    Tensor of shape (B,)
        ``-inf`` where nothing is feasible. Its gradient is the marginals, and it can be
        differentiated any number of times.

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
    """log Z (B,), node marginals (B, T, K) and summed or single edge marginals."""

    log_z: Tensor
    nodes: Tensor
    edges: Tensor


def marginals(
    nodes: Tensor,
    transitions: Tensor,
    begin: Tensor | None = None,
    end: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    backend: str = "auto",
) -> ChainMarginals:
    """Probabilities of the labels at every position, and of pairs of neighboring labels.

    Arguments as in :func:`log_partition`. With one table of transitions per position,
    ``edges`` (B, T - 1, K, K) has the probabilities of each pair; with shared transitions
    it has their sum over positions and chains, (K, K). If one of the scores requires a
    gradient, the answer can be differentiated (by operations recorded through the scan).

    Examples
    --------
    >>> import torch
    >>> result = marginals(torch.tensor([[[0.0, 1.0]]]), torch.zeros(2, 2))
    >>> result.nodes
    tensor([[[0.2689, 0.7311]]])
    """
    return probabilities(make_scores(nodes, transitions, begin, end, mask), backend)


def probabilities(scores: Scores, backend: str = "auto") -> ChainMarginals:
    """`marginals` of checked scores."""
    weights = torch.ones(len(scores.nodes), dtype=scores.nodes.dtype, device=scores.nodes.device)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in scores[:4]):
        closed, places = close(scores)
        log_z, result = _plain.log_domain(closed, weights)
        assert result is not None
        edges = result.trans if scores.is_shared else places.put_tables(result.trans)
        return ChainMarginals(log_z, places.put(result.nodes), edges)
    own = scores.each(lambda x: x.detach().requires_grad_())
    with torch.enable_grad():
        log_z = log_likelihood(own, backend=backend)
    by_nodes, by_trans = torch.autograd.grad(log_z, own[:2], weights)
    return ChainMarginals(log_z.detach(), by_nodes, by_trans)


def viterbi(
    nodes: Tensor,
    transitions: Tensor,
    begin: Tensor | None = None,
    end: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Best score (B,) and labeling (B, T) of every chain; arguments as in `log_partition`.

    The score is differentiable: its gradient is the indicator of the labeling. Where there
    is no position the label is 0.

    Examples
    --------
    >>> import torch
    >>> score, labels = viterbi(torch.tensor([[[0.0, 1.0], [3.0, 0.0]]]), torch.zeros(2, 2))
    >>> score.item(), labels.tolist()
    (4.0, [[1, 0]])
    """
    return best(make_scores(nodes, transitions, begin, end, mask), backend)


def best(scores: Scores, backend: str = "auto") -> tuple[Tensor, Tensor]:
    """`viterbi` of checked scores."""
    if not torch.is_grad_enabled() or not any(
        x is not None and x.requires_grad for x in scores[:4]
    ):
        return decode(scores, backend)
    scores, places = close(scores)
    value, labels = decode(scores, backend)
    exact = scores_.path_score(scores, labels)
    # The value of the search, the gradient of the lookups.
    return torch.where(torch.isfinite(value), exact, value), places.put_labels(labels)


def decode(scores: Scores, backend: str = "auto", placed: bool = True) -> tuple[Tensor, Tensor]:
    """`best` without gradient; the labels at their places, or else without gaps."""
    with torch.no_grad():
        chosen = choose_backend(scores, backend)
        if backend == "auto" and scores.nodes.device.type == "cpu" and _has("numba"):
            chosen = "compiled"
        if chosen == "triton":
            from cliquewise.torch import _triton

            return _triton.viterbi(scores, placed)
        scores, places = close(scores)
        if chosen == "compiled":
            from cliquewise.torch import _compiled

            value, labels = _compiled.viterbi(scores)
        else:
            value, labels = _plain.viterbi(scores)
        return value, places.put_labels(labels) if placed else labels


def path_score(
    labels: Tensor,
    nodes: Tensor,
    transitions: Tensor,
    begin: Tensor | None = None,
    end: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Score (B,) of given labelings (B, T); differentiable.

    Positions with a label of -100 are left out, as those where the mask is False.

    Examples
    --------
    >>> import torch
    >>> nodes = torch.tensor([[[0.0, 1.0], [3.0, 0.0]]])
    >>> path_score(torch.tensor([[1, 0]]), nodes, torch.zeros(2, 2))
    tensor([4.])
    """
    scores = make_scores(nodes, transitions, begin, end, mask)
    scores, labels, _ = close_tagged(scores, labels)
    return scores_.path_score(scores, labels)
