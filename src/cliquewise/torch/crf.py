"""ChainCRF: a layer that drops in for pytorch-crf's, on the oracles of this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from cliquewise.errors import DataError, UnsupportedError
from cliquewise.models.label_schemes import scheme_masks
from cliquewise.torch import _scores
from cliquewise.torch._tags import label_names, mask_of, tags_of
from cliquewise.torch.chain import ChainMarginals, decode, log_likelihood, probabilities

if TYPE_CHECKING:
    from cliquewise.torch.decoder import ViterbiDecoder

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")
_REDUCTIONS = ("none", "sum", "mean", "token_mean")


def _untraced(method: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
    """The method, left alone by torch.compile: the graph ends before it and goes on after it."""

    @wraps(method)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer:
        if exporting():
            raise UnsupportedError(
                f"{method.__name__} of a ChainCRF cannot be exported, as compiled kernels do not "
                "travel: export crf.decoder(), or a module that calls crf.predict"
            )
        if torch.compiler.is_compiling():
            from cliquewise.torch._dynamo import run

            return run(method, *args, **kwargs)
        return method(*args, **kwargs)

    return call


def exporting() -> bool:
    """Whether torch.export is looking on."""
    # Not in the oldest PyTorch that is supported; under torch.compile some say that they export.
    if torch.compiler.is_dynamo_compiling():
        return False
    return bool(getattr(torch.compiler, "is_exporting", bool)())


class ChainCRF(nn.Module):
    """Conditional random field over chains, on top of any encoder.

    Constructor, call, ``decode`` and parameter names are those of pytorch-crf's ``CRF``: it
    drops in, and old weights load. Masks may have gaps, as those of the first pieces of words
    have, and begin with one: the neighbor of a position is the next one that exists.

    Parameters
    ----------
    num_tags : int
        Number of labels.
    batch_first : bool, default=False
        Whether emissions are (batch, time, labels) rather than (time, batch, labels).
    forbidden : bool Tensor of shape (num_tags, num_tags) or list of pairs of tags, optional
        Transitions that cannot be: a mask, or pairs (tag, next tag).
    forbidden_starts, forbidden_ends : bool Tensor of shape (num_tags,) or list of tags, optional
        Tags that cannot come first, or last: a mask, or the tags.

    Attributes
    ----------
    start_transitions, end_transitions : Parameter of shape (num_tags,)
    transitions : Parameter of shape (num_tags, num_tags)
    labels : list of str or None
        The names of the tags, which :meth:`from_scheme` knows.

    Examples
    --------
    >>> import torch
    >>> from cliquewise.torch import ChainCRF
    >>> crf = ChainCRF(3, batch_first=True)
    >>> emissions = torch.zeros(2, 4, 3)
    >>> tags = torch.tensor([[0, 1, 2, 0], [2, 2, 1, 0]])
    >>> loss = -crf(emissions, tags, reduction="mean")
    >>> loss.backward()
    >>> crf.transitions.grad.shape
    torch.Size([3, 3])
    >>> [len(labels) for labels in crf.decode(emissions)]
    [4, 4]
    """

    labels: list[str] | None = None
    forbidden: Tensor | None
    forbidden_starts: Tensor | None
    forbidden_ends: Tensor | None

    def __init__(
        self,
        num_tags: int,
        batch_first: bool = False,
        *,
        forbidden: Any = None,
        forbidden_starts: Any = None,
        forbidden_ends: Any = None,
    ) -> None:
        num_tags = _scores.check_count("num_tags", num_tags, 1)
        super().__init__()
        self.num_tags = num_tags
        self.batch_first = batch_first
        self.start_transitions = nn.Parameter(torch.empty(num_tags))
        self.end_transitions = nn.Parameter(torch.empty(num_tags))
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))
        # Not in the state_dict: old weights have no such entry.
        self.register_buffer("forbidden", mask_of(forbidden, num_tags), persistent=False)
        for name, tags in (("starts", forbidden_starts), ("ends", forbidden_ends)):
            mask = tags_of(f"forbidden_{name}", tags, num_tags)
            self.register_buffer(f"forbidden_{name}", mask, persistent=False)
        self.reset_parameters()

    @classmethod
    def from_scheme(
        cls, scheme: str, labels: Sequence[str] | Mapping[int, str], batch_first: bool = False
    ) -> ChainCRF:
        """A layer that knows only labelings of a span scheme: others have probability 0.

        Parameters
        ----------
        scheme : {"BIO", "BIOES", "IO"}
            ``IOB2`` and ``IOBES`` are other names of the first two. ``IO`` forbids nothing.
        labels : sequence of str, or mapping from int to str
            The names of the tags 0, 1, ...: ``O`` or ``<letter>-<type>``. A mapping is the
            ``id2label`` of a transformers config.
        batch_first : bool, default=False

        Examples
        --------
        >>> import torch
        >>> from cliquewise.torch import ChainCRF
        >>> crf = ChainCRF.from_scheme("BIO", ["O", "B-PER", "I-PER"], batch_first=True)
        >>> crf.decode(torch.tensor([[[0.0, 1.0, 9.0], [0.0, 0.0, 9.0]]]))
        [[1, 2]]
        """
        names = label_names(labels)
        masks = (torch.from_numpy(~mask) for mask in scheme_masks(scheme, names))
        follow, first, last = masks
        crf = cls(
            len(names), batch_first, forbidden=follow, forbidden_starts=first, forbidden_ends=last
        )
        crf.labels = names
        return crf

    def reset_parameters(self) -> None:
        """Draw all weights from a uniform distribution between -0.1 and 0.1."""
        for weight in (self.start_transitions, self.end_transitions, self.transitions):
            nn.init.uniform_(weight, -0.1, 0.1)

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"num_tags={self.num_tags}, batch_first={self.batch_first}"

    def tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """Transition, begin and end scores, -inf where they are forbidden."""
        own = (self.transitions, self.start_transitions, self.end_transitions)
        never = (self.forbidden, self.forbidden_starts, self.forbidden_ends)
        trans, begin, end = (
            x if no is None else x.masked_fill(no, -torch.inf) for x, no in zip(own, never)
        )
        return trans, begin, end

    def scores(self, emissions: Tensor, mask: Tensor | None = None) -> _scores.Scores:
        """The scores of a batch, checked; the mask may have gaps."""
        _scores.check_tensor("emissions", emissions)
        if emissions.dim() != 3 or emissions.shape[2] != self.num_tags:
            order = "batch, time" if self.batch_first else "time, batch"
            raise DataError(
                f"emissions must have shape ({order}, {self.num_tags}), not "
                f"{tuple(emissions.shape)}"
            )
        if mask is not None:
            _scores.check_tensor("mask", mask)
            self._check_shape("mask", mask, emissions)
        if not self.batch_first:
            emissions = emissions.transpose(0, 1)
            mask = None if mask is None else mask.transpose(0, 1)
        return _scores.make_scores(emissions, *self.tables(), mask)

    def _check_shape(self, name: str, value: Tensor, emissions: Tensor) -> None:
        shape = tuple(emissions.shape[:2])
        if value.shape == shape:
            return
        hint = ""
        if tuple(value.shape) == shape[::-1]:
            order = "batch before time" if self.batch_first else "time before batch"
            hint = f" (this layer has batch_first={self.batch_first}: {order}, everywhere)"
        raise DataError(f"{name} must have shape {shape}, not {tuple(value.shape)}{hint}")

    @_untraced
    def forward(
        self,
        emissions: Tensor,
        tags: Tensor,
        mask: Tensor | None = None,
        reduction: str = "sum",
    ) -> Tensor:
        """Log-likelihood of the tags.

        Parameters
        ----------
        emissions : Tensor of shape (T, B, K), or (B, T, K) with ``batch_first``
        tags : integer Tensor of shape (T, B) or (B, T)
            Positions with a tag of -100 are left out, whatever the mask says.
        mask : Tensor of the shape of tags, optional
            True or 1 at the positions that exist.
        reduction : {"none", "sum", "mean", "token_mean"}
            Over sequences; ``token_mean`` divides by the number of positions.
        """
        if reduction not in _REDUCTIONS:
            raise DataError(f"invalid reduction: {reduction}; they are {', '.join(_REDUCTIONS)}")
        scores = self.scores(emissions, mask)
        _scores.check_tensor("tags", tags)
        self._check_shape("tags", tags, emissions)
        if not self.batch_first:
            tags = tags.transpose(0, 1)
        one = "sum" if reduction == "token_mean" else reduction
        value = log_likelihood(scores, tags, reduction=one)
        never = (self.forbidden, self.forbidden_starts, self.forbidden_ends)
        if any(mask is not None for mask in never):
            self._check_possible(value, scores, tags)
        if reduction != "token_mean":
            return value
        known = _scores.without_ignored(tags, scores.mask)
        count: Any = tags.numel() if known is None else known.sum()
        if not isinstance(count, Tensor) or count.device.type == "cpu":
            _scores.check_examples(int(count))
        return value / count

    def _check_possible(self, value: Tensor, scores: _scores.Scores, tags: Tensor) -> None:
        """Name tags that are forbidden, on the CPU, where nothing has to be waited for."""
        if value.device.type != "cpu" or not bool((value == -torch.inf).any()):
            return
        scores, tags, _ = _scores.close_tagged(scores, tags)
        for row, (labels, n) in enumerate(zip(tags, scores.lengths().tolist())):
            own = labels[:n].tolist()
            pairs = [(a, b) for a, b in pairwise(own) if self._no(self.forbidden, a, b)]
            if pairs:
                what = f"{pairs[0][1]} cannot follow {pairs[0][0]}"
            elif own and self._no(self.forbidden_starts, own[0]):
                what = f"{own[0]} cannot come first"
            elif own and self._no(self.forbidden_ends, own[-1]):
                what = f"{own[-1]} cannot come last"
            else:
                continue
            raise DataError(
                f"the tags of sequence {row} are impossible: {what}. Repair the tags (those of a "
                "cut piece of text may begin inside a span), or leave the position out with -100"
            )

    @staticmethod
    def _no(mask: Tensor | None, *at: int) -> bool:
        return mask is not None and bool(mask[at])

    @_untraced
    def decode(self, emissions: Tensor, mask: Tensor | None = None) -> list[list[int]]:
        """Best labels of every sequence: a list of those at the positions that exist.

        So a list is as long as its row of the mask has ones, and not as the row where it has
        gaps; :meth:`predict` has the labels at their places.
        """
        scores = self.scores(emissions, mask)
        value, labels = decode(scores, placed=False)
        rows: list[list[int]] = labels.tolist()
        _scores.check_numbers(value)
        if scores.mask is None:
            return rows
        lengths: list[int] = scores.mask.sum(1).tolist()
        return [row[:n] for row, n in zip(rows, lengths)]

    def predict(self, emissions: Tensor, mask: Tensor | None = None) -> Tensor:
        """Best labels as a tensor (B, T), whatever ``batch_first``; -100 where the mask is False.

        What `transformers.Trainer` and metrics on padded arrays want. Scores that are NaN, or that
        forbid every labeling, have no best labels: that is an error, or, on a GPU, which is not
        waited for, all are -100.
        ``torch.export`` gets the operations of :meth:`decoder`.
        """
        if exporting():
            from cliquewise.torch.decoder import plain_decode

            return plain_decode(emissions, mask, self.tables(), self.batch_first)[0]
        return self._predict(emissions, mask)

    @_untraced
    def _predict(self, emissions: Tensor, mask: Tensor | None) -> Tensor:
        scores = self.scores(emissions, mask)
        value, labels = decode(scores)
        if scores.mask is not None:
            labels = labels.masked_fill(~scores.mask, _scores.IGNORED)
        if value.is_cuda:
            none = value.isnan() | (value == -torch.inf)
            return labels.masked_fill(none.unsqueeze(1), _scores.IGNORED)
        _scores.check_numbers(value)
        return labels

    @_untraced
    def predict_spans(
        self,
        emissions: Tensor,
        mask: Tensor | None = None,
        *,
        labels: Sequence[str] | Mapping[int, str] | None = None,
        proba: bool = False,
        candidates: str = "best",
        threshold: float | None = None,
        k: int | None = None,
    ) -> list[list[Any]]:
        """The spans (entities, chunks) of every sequence, as `SequenceTagger.predict_spans`.

        Parameters
        ----------
        emissions, mask
            As in :meth:`decode`, on any device; probabilities are computed on the CPU, in float64.
        labels : sequence of str, or mapping from int to str, optional
            The names of the tags, ``O`` or ``<prefix>-<type>``; by default those that
            :meth:`from_scheme` was given.
        proba : bool, default=False
            Add the probability that exactly this span with this type is there. ``threshold``,
            ``k`` and ``candidates="all"`` imply it.
        candidates : {"best", "all"}, default="best"
            The spans of the best labeling, or all that are possible: these may overlap, and need
            a ``threshold`` or a ``k``.
        threshold : float, optional
            Leave out less probable spans.
        k : int, optional
            Leave out all but the k most probable spans of each sequence, which then come first.

        Returns
        -------
        list of lists of (start, end, type) or (start, end, type, probability)
            Named tuples. Positions are those of the emissions, gaps of the mask counted; ``end``
            is the one after the last that the mask has, whatever gap follows.

        Examples
        --------
        >>> import torch
        >>> from cliquewise.torch import ChainCRF
        >>> crf = ChainCRF.from_scheme("BIO", ["O", "B-PER", "I-PER"], batch_first=True)
        >>> emissions = torch.tensor([[[0.0, 9.0, 0.0], [5.0, 5.0, 5.0], [0.0, 0.0, 9.0]]])
        >>> mask = torch.tensor([[1, 0, 1]])
        >>> crf.predict_spans(emissions, mask)
        [[Span(start=0, end=3, type='PER')]]
        >>> crf.predict_spans(emissions, mask, proba=True)[0][0].probability > 0.9
        True
        """
        from cliquewise.torch._spans import find_spans, span_labels

        names = span_labels(self.labels if labels is None else labels, self.num_tags)
        return find_spans(self.scores(emissions, mask), names, proba, candidates, threshold, k)

    def decoder(self) -> ViterbiDecoder:
        """The present weights as a module of plain tensor operations, to be exported."""
        from cliquewise.torch.decoder import ViterbiDecoder

        return ViterbiDecoder(*self.tables(), self.batch_first).eval()

    @_untraced
    def marginals(self, emissions: Tensor, mask: Tensor | None = None) -> ChainMarginals:
        """Probabilities of the labels, (B, T, K) whatever ``batch_first``; and log Z, edges."""
        return probabilities(self.scores(emissions, mask))

    @_untraced
    def top_k(self, emissions: Tensor, k: int, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The scores (B, k) of the k best labelings and these (B, k, T), best first.

        Labels are 0 where the mask is False.
        """
        from cliquewise.torch.draws import best_k

        return best_k(self.scores(emissions, mask), k)

    @_untraced
    def sample(
        self,
        emissions: Tensor,
        n: int = 1,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Independent draws, (n, B, T); 0 where the mask is False."""
        from cliquewise.torch.draws import draw

        return draw(self.scores(emissions, mask), n, generator)
