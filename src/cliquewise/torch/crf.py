"""ChainCRF: a layer compatible with the one of pytorch-crf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from cliquewise.errors import DataError
from cliquewise.models.label_schemes import scheme_masks
from cliquewise.torch import _scores
from cliquewise.torch._tags import label_names, parse_tag_mask, parse_transition_mask
from cliquewise.torch._transforms import can_read, check_plain_call, graph_break, is_exporting
from cliquewise.torch.chain import ChainMarginals, decode, log_likelihood, marginals_of

if TYPE_CHECKING:
    from cliquewise.torch.decoder import ViterbiDecoder

_INSTEAD = "crf.decoder(), or a module that calls crf.predict or crf.marginals"
_REDUCTIONS = ("none", "sum", "mean", "token_mean")


class ChainCRF(nn.Module):
    """Conditional random field over chains, on top of any encoder.

    A drop-in replacement for the ``CRF`` of pytorch-crf: same constructor, call, ``decode`` and
    parameter names, so its weights load. Unlike there, masks may have gaps and may begin with
    one, as those of the first pieces of words do: the neighbor of a position is the next existing
    one.

    Parameters
    ----------
    num_tags : int
        Number of labels.
    batch_first : bool, default=False
        Whether emissions are (batch, time, labels) rather than (time, batch, labels).
    forbidden : bool Tensor of shape (num_tags, num_tags) or list of pairs of tags, optional
        Impossible transitions: a mask, or pairs (tag, next tag).
    forbidden_starts, forbidden_ends : bool Tensor of shape (num_tags,) or list of tags, optional
        Tags that cannot come first, or last: a mask, or the tags.

    Attributes
    ----------
    start_transitions, end_transitions : Parameter of shape (num_tags,)
    transitions : Parameter of shape (num_tags, num_tags)
    labels : list of str or None
        The names of the tags, set by :meth:`from_scheme`.

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
        self.register_buffer("forbidden", parse_transition_mask(forbidden, num_tags))
        for name, tags in (("starts", forbidden_starts), ("ends", forbidden_ends)):
            mask = parse_tag_mask(f"forbidden_{name}", tags, num_tags)
            self.register_buffer(f"forbidden_{name}", mask)
        self.reset_parameters()

    @classmethod
    def from_scheme(
        cls, scheme: str, labels: Sequence[str] | Mapping[int, str], batch_first: bool = False
    ) -> ChainCRF:
        """Create a layer in which labelings that violate a span scheme have probability 0.

        Parameters
        ----------
        scheme : {"BIO", "BIOES", "IO"}
            ``IOB2`` and ``IOBES`` are synonyms of the first two. ``IO`` forbids nothing.
        labels : sequence of str, or mapping from int to str
            The names of the tags 0, 1, ...: ``O`` or ``<letter>-<type>``. A mapping has the form
            of ``id2label`` in a transformers config.
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

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *more: Any, **options: Any
    ) -> None:
        """Load weights; their constraints, where saved, must be those of this layer."""
        errors: list[str] = more[-1] if more else options["error_msgs"]
        for name in ("forbidden", "forbidden_starts", "forbidden_ends"):
            own, saved = getattr(self, name), state_dict.get(prefix + name)
            if saved is None:
                # Weights of pytorch-crf, and files of older versions, have no constraints.
                if own is not None:
                    state_dict[prefix + name] = own
                continue
            if own is None or not torch.equal(own.cpu(), saved.cpu()):
                what = "no" if own is None else "other"
                errors.append(
                    f"{prefix}{name}: the weights were trained with constraints, and this layer "
                    f"has {what} constraints; create it with the same scheme or forbidden=..."
                )
            if own is None:
                del state_dict[prefix + name]
        super()._load_from_state_dict(state_dict, prefix, *more, **options)

    def reset_parameters(self) -> None:
        """Initialize all weights uniformly between -0.1 and 0.1."""
        for weight in (self.start_transitions, self.end_transitions, self.transitions):
            nn.init.uniform_(weight, -0.1, 0.1)

    def extra_repr(self) -> str:
        """Describe the layer for ``print``."""
        return f"num_tags={self.num_tags}, batch_first={self.batch_first}"

    def tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return transition, begin and end scores, -inf where forbidden."""
        own = (self.transitions, self.start_transitions, self.end_transitions)
        never = (self.forbidden, self.forbidden_starts, self.forbidden_ends)
        trans, begin, end = (
            x if no is None else x.masked_fill(no, -torch.inf) for x, no in zip(own, never)
        )
        return trans, begin, end

    def scores(self, emissions: Tensor, mask: Tensor | None = None) -> _scores.Scores:
        """Return the checked scores of a batch; the mask may have gaps."""
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
            hint = f" (this layer has batch_first={self.batch_first}: {order})"
        raise DataError(f"{name} must have shape {shape}, not {tuple(value.shape)}{hint}")

    @graph_break
    def forward(
        self,
        emissions: Tensor,
        tags: Tensor,
        mask: Tensor | None = None,
        reduction: str = "sum",
        *,
        label_smoothing: float = 0.0,
    ) -> Tensor:
        """Compute the log-likelihood of the tags.

        Parameters
        ----------
        emissions : Tensor of shape (T, B, K), or (B, T, K) with ``batch_first``
        tags : integer Tensor of shape (T, B) or (B, T)
            Positions tagged -100 are left out, in addition to masked ones.
        mask : Tensor of the shape of tags, optional
            True or 1 at existing positions.
        reduction : {"none", "sum", "mean", "token_mean"}
            Over sequences; ``token_mean`` divides by the number of positions.
        label_smoothing : float, default=0.0
            How much of the tags is replaced by labels that are uniform over the allowed ones.
        """
        if reduction not in _REDUCTIONS:
            raise DataError(f"invalid reduction: {reduction}; choose from {', '.join(_REDUCTIONS)}")
        scores = self.scores(emissions, mask)
        _scores.check_tensor("tags", tags)
        self._check_shape("tags", tags, emissions)
        if not self.batch_first:
            tags = tags.transpose(0, 1)
        one = "sum" if reduction == "token_mean" else reduction
        if label_smoothing:
            from cliquewise.torch.losses import reduce, smoothed_log_likelihood

            value = reduce(smoothed_log_likelihood(scores, tags, label_smoothing), one)
        else:
            value = log_likelihood(scores, tags, reduction=one)
        never = (self.forbidden, self.forbidden_starts, self.forbidden_ends)
        if any(mask is not None for mask in never):
            self._check_possible(value, scores, tags)
        if reduction != "token_mean":
            return value
        known = _scores.mask_ignored(tags, scores.mask)
        count: Any = tags.numel() if known is None else known.sum()
        if not isinstance(count, Tensor) or can_read(count):
            _scores.check_nonempty(int(count))
        return value / count

    def _check_possible(self, value: Tensor, scores: _scores.Scores, tags: Tensor) -> None:
        """Raise on the CPU if tags are forbidden, and name them."""
        if not can_read(value) or not bool((value == -torch.inf).any()):
            return
        scores, tags, _ = _scores.remove_untagged(scores, tags)
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
                f"the tags of sequence {row} are impossible: {what}. Fix the tags (text that was "
                "cut may begin inside a span), or leave the position out with -100"
            )

    @staticmethod
    def _no(mask: Tensor | None, *at: int) -> bool:
        return mask is not None and bool(mask[at])

    @graph_break
    def decode(self, emissions: Tensor, mask: Tensor | None = None) -> list[list[int]]:
        """Return the best labels of every sequence, without masked positions.

        :meth:`predict` returns a tensor with the labels at their positions.
        """
        check_plain_call("ChainCRF.decode", _INSTEAD)
        scores = self.scores(emissions, mask)
        value, labels = decode(scores, keep_gaps=False)
        rows: list[list[int]] = labels.tolist()
        _scores.check_best_scores(value)
        if scores.mask is None:
            return rows
        lengths: list[int] = scores.mask.sum(1).tolist()
        return [row[:n] for row, n in zip(rows, lengths)]

    def predict(self, emissions: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the best labels as a tensor (B, T), -100 at masked positions.

        The batch comes first, whatever ``batch_first``, as `transformers.Trainer` and metrics
        expect. If scores are NaN or forbid every labeling, there are no best labels: the CPU
        raises an error, and on a GPU, which would have to be waited for, all labels are -100.
        ``torch.export`` records the operations of :meth:`decoder`.
        """
        if is_exporting():
            from cliquewise.torch.decoder import decode_exportable

            return decode_exportable(emissions, mask, self.tables(), self.batch_first)[0]
        return self._predict(emissions, mask)

    @graph_break
    def _predict(self, emissions: Tensor, mask: Tensor | None) -> Tensor:
        scores = self.scores(emissions, mask)
        value, labels = decode(scores)
        if scores.mask is not None:
            labels = labels.masked_fill(~scores.mask, _scores.IGNORED)
        if not can_read(value):
            none = value.isnan() | (value == -torch.inf)
            return labels.masked_fill(none.unsqueeze(1), _scores.IGNORED)
        _scores.check_best_scores(value)
        return labels

    @graph_break
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
        """Find the spans (entities, chunks) of every sequence, as `SequenceTagger.predict_spans`.

        Parameters
        ----------
        emissions, mask
            As in :meth:`decode`, on any device. Probabilities are computed on the CPU in float64.
        labels : sequence of str, or mapping from int to str, optional
            The names of the tags, ``O`` or ``<prefix>-<type>``; by default those of
            :meth:`from_scheme`.
        proba : bool, default=False
            Add the probability of exactly this span with this type. Implied by ``threshold``,
            ``k`` and ``candidates="all"``.
        candidates : {"best", "all"}, default="best"
            The spans of the best labeling, or all possible spans, which may overlap and need a
            ``threshold`` or a ``k``.
        threshold : float, optional
            Leave out less probable spans.
        k : int, optional
            Leave out all but the k most probable spans of each sequence, which then come first.

        Returns
        -------
        list of lists of (start, end, type) or (start, end, type, probability)
            Named tuples. Positions count masked ones; ``end`` is one past the last existing
            position of the span.

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
        check_plain_call("ChainCRF.predict_spans", _INSTEAD)
        from cliquewise.torch._spans import find_spans, span_labels

        names = span_labels(self.labels if labels is None else labels, self.num_tags)
        return find_spans(self.scores(emissions, mask), names, proba, candidates, threshold, k)

    def decoder(self) -> ViterbiDecoder:
        """Return the current weights as a module of plain tensor operations, for export."""
        from cliquewise.torch.decoder import ViterbiDecoder

        return ViterbiDecoder(*self.tables(), self.batch_first).eval()

    @graph_break
    def marginals(self, emissions: Tensor, mask: Tensor | None = None) -> ChainMarginals:
        """Compute log Z and the probabilities of labels (B, T, K) and of pairs of labels.

        The batch comes first, whatever ``batch_first``. ``torch.export`` records plain operations.
        """
        return marginals_of(self.scores(emissions, mask))

    @graph_break
    def top_k(self, emissions: Tensor, k: int, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Compute scores (B, k) and labels (B, k, T) of the k best labelings, best first.

        Labels are 0 at masked positions.
        """
        from cliquewise.torch.sampling import top_k_of

        return top_k_of(self.scores(emissions, mask), k)

    @graph_break
    def sample(
        self,
        emissions: Tensor,
        n: int = 1,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Sample n independent labelings, (n, B, T); 0 at masked positions."""
        from cliquewise.torch.sampling import sample_from

        return sample_from(self.scores(emissions, mask), n, generator)
