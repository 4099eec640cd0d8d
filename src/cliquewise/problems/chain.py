"""ChainProblem: likelihood and hinge losses of labeled sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError, ForbiddenLabelError, UnsupportedError
from cliquewise.models.chain import ChainModel, Mask
from cliquewise.models.sparse_transitions import links_of_table, may_be_sparse
from cliquewise.problems.base import between
from cliquewise.problems.chain_rounding import ChainRounding, FeatureSizes
from cliquewise.problems.rounding import EXP, SUM, UNIT, log_roundings
from cliquewise.ragged import Floats

#: Most work (tokens times squared labels) in one call of a kernel: about two seconds.
WORK = 400_000_000
#: Entries of the data that show how work is shared among attributes.
SAMPLE = 1 << 16
#: The losses of chains.
LOSSES = ("log", "softmax_margin", "hinge", "smooth_hinge")
#: Those that are smoothed maxima of scores and costs.
SMOOTHED = ("softmax_margin", "smooth_hinge")


class ChainProblem(ChainRounding):
    """Likelihood or structured hinge loss of chains.

    Parameters
    ----------
    model : ChainModel
    data : Dataset
        With labels; -1 where a label is not known.
    C : float, default=1.0
        Weight of the sum of the losses against ``1/2 ||w||^2``; infinity leaves the penalty
        out, which only solver ``casimir`` accepts.
    partial : bool array (tokens, K), optional
        For tokens whose label is not known: what it may be. Such losses are not convex.
    n_jobs : int, default=1
        Threads for passes over all examples.
    loss : {"log", "softmax_margin", "hinge", "smooth_hinge"}, default="log"
        ``hinge`` is ``max_y [cost(y) + <w, F(x_i, y) - F(x_i, y_i)>]``, where the cost is the
        number of wrong labels, not divided by the length, or the sum of ``data.costs``;
        ``smooth_hinge`` smooths that maximum; ``softmax_margin`` has ``log sum exp`` in its
        place, so that it is the likelihood with costs added to the scores.
    gamma : float, default=1.0
        Amount of smoothing of ``smooth_hinge``.
    smoother : {"l2", "entropy"}, default="l2"
        ``l2``: over distributions of at most ``top`` labelings; ``entropy``: over all.
    top : int, default=5
    """

    kind = "chain"
    losses_known = LOSSES

    def __init__(
        self,
        model: ChainModel,
        data: Dataset,
        C: float = 1.0,
        partial: Mask | None = None,
        n_jobs: int = 1,
        loss: str = "log",
        gamma: float = 1.0,
        smoother: str = "l2",
        top: int = 5,
    ):
        super().__init__(C, loss, n_jobs)
        if loss == "smooth_hinge":
            _check_smoothing(gamma, smoother, top)
        if data.labels is None:
            raise DataError("training needs labels")
        self.model = model
        self.data = data
        self.form = model.form(data)
        self.chains = self.form.chains
        self.gamma, self.smoother, self.top = float(gamma), smoother, int(top)
        if loss == "softmax_margin":
            self.gamma, self.smoother = 1.0, "entropy"
        if loss == "log" and data.costs is not None:
            raise UnsupportedError(
                'loss "log" has no costs; loss "softmax_margin" is the likelihood with costs'
            )
        self._check_truth()
        self.partial = None if self.is_convex else self._permitted(partial)
        self.edge_chains: Any = None
        if model.n_edge_attributes:
            if data.edges is None:
                raise DataError("the model has attributes of token pairs; the data have none")
            self.edge_chains = self.form.edge_chains
        if loss != "log" and not self.is_convex:
            raise UnsupportedError(
                f'loss "{loss}" needs every label to be known; loss "log" accepts partial labels'
            )

    @property
    def n_examples(self) -> int:
        """Number of examples."""
        return len(self.data)

    @property
    def dimension(self) -> int:
        """Length of the weight vector."""
        return self.model.dimension

    @property
    def has_pair_attributes(self) -> bool:  # type: ignore[override]
        """Whether the model has attributes of token pairs."""
        return self.model.n_edge_attributes > 0

    @property
    def vector_size(self) -> int:
        """Seen pairs may be packed as rows of all labels."""
        return self.form.size

    @property
    def max_step_examples(self) -> int:
        """Sequences whose dynamic programs take about two seconds."""
        work = self.data.n_tokens * self.model.n_labels**2
        return -(-self.n_examples // (1 + int(work // WORK)))

    def cuts(self, parts: int) -> list[int]:
        """Where sequences are to be cut into parts of equal tokens."""
        marks = np.linspace(0, self.data.n_tokens, parts + 1)
        cuts = np.searchsorted(self.data.offsets, marks)
        cuts[0], cuts[-1] = 0, self.n_examples
        return cuts.tolist()  # type: ignore[no-any-return]

    def over_attributes(self, part: Callable[[int, int], None]) -> None:
        """``part(first, last)`` over all attributes, in ``n_jobs`` threads of about equal work."""
        n, indices = self.model.n_attributes, self.chains.indices
        cuts = [0, n]
        if self.n_jobs > 1 and len(indices):
            sample = np.sort(indices[:: -(-len(indices) // SAMPLE)])
            marks = np.linspace(0, len(sample), self.n_jobs + 1)[1:-1].astype(int)
            cuts = sorted({0, *sample[marks].tolist(), n})
        between(cuts, part)

    def fingerprint_parts(self, n: int) -> Iterator[tuple[str, Any]]:
        """Features, labels, constraints and weights of the first sequences, and the model."""
        data, c, m = self.data, self.chains, self.model
        tokens = int(data.offsets[n])
        for part in (data, data.edges) if data.edges is not None else (data,):
            entries = slice(0, int(part.indptr[tokens]))
            yield "features", part.offsets[: n + 1]
            yield "features", part.indptr[: tokens + 1]
            yield "features", part.indices[entries]
            values = np.empty(0) if part.values is None else part.values[entries]
            # Values of 1 need not be written down, but are where another example has others.
            yield "features", np.empty(0) if (values == 1.0).all() else values
        yield "labels", c.labels[:tokens]
        if self.partial is not None:
            yield "labels", self.partial[:tokens]
        yield "weights", c.weights[:n]
        if len(c.costs):
            yield "costs", c.costs[:tokens]
        yield "constraints", c.allowed[:tokens]
        yield "constraints", m.edge_allowed
        sizes = np.array([m.n_labels, m.intercept, m.boundaries, m.n_edge_attributes])
        yield from (("model", a) for a in (m.pair_start, m.pair_label, m.edge_free, sizes))

    @cached_property
    def is_convex(self) -> bool:
        """Whether every label is known."""
        return bool(np.all(self.chains.labels >= 0))

    def _check_truth(self) -> None:
        """The given labels must be possible under the model's own constraints."""
        labels, allowed = self.chains.labels, self.chains.allowed
        known = np.flatnonzero(labels >= 0)
        if len(allowed):
            bad = known[~allowed[known, labels[known]]]
            if len(bad):
                first = int(bad[0])
                raise ForbiddenLabelError(self.data.place(first), int(labels[first]))
        edges = self.model.edge_allowed
        if len(edges):
            at = self.data.followers
            at = at[(labels[at] >= 0) & (labels[at - 1] >= 0)]
            bad = at[~edges[labels[at - 1], labels[at]]]
            if len(bad):
                first = int(bad[0])
                label, before = int(labels[first]), int(labels[first - 1])
                raise ForbiddenLabelError(self.data.place(first), label, before)

    def _permitted(self, partial: Mask | None) -> Mask:
        """What every token may be, given all that is known of it: labels, sets and constraints.

        The loss is the log of what all labelings weigh less that of those permitted, so that these
        have to be some of those.
        """
        labels, allowed, shape = self.chains.labels, self.chains.allowed, self._mask_shape
        mask = np.ones(shape, dtype=bool) if partial is None else np.array(partial, dtype=bool)
        if mask.shape != shape:
            raise DataError(f"partial has shape {mask.shape}; with these tokens it must be {shape}")
        known = np.flatnonzero(labels >= 0)
        mask[known] = False
        mask[known, labels[known]] = True
        if len(allowed):
            mask &= allowed
        self._check_possible(mask)
        return mask

    @property
    def _mask_shape(self) -> tuple[int, int]:
        return self.data.n_tokens, self.model.n_labels

    def _check_possible(self, mask: Mask) -> None:
        """Refuse sequences that no labeling within a mask fits: the first token is named."""
        data, edges = self.data, self.model.edge_allowed
        reach = mask.copy()
        for t in range(1, int(data.lengths.max(initial=0)) if len(edges) else 0):
            at = data.offsets[:-1][data.lengths > t] + t
            reach[at] &= reach[at - 1] @ edges
        stuck = np.flatnonzero(~reach.any(axis=1))
        if len(stuck):
            raise DataError(
                f"{data.place(int(stuck[0]))}: what is known of its label, the allowed labels and "
                "the transition scheme leave no labeling; convert the labels or use "
                'transitions="all"'
            )

    # ---- values

    def losses(self, w: Floats) -> Floats:
        """Loss of every example (all labels known)."""
        return self.packed_losses(self.form.pack(w))

    def packed_losses(self, w: Floats) -> Floats:
        """:meth:`losses` for a solver that keeps its weights packed."""
        from cliquewise._kernels.chain import edges, gradient, hinge, smooth

        out, links = np.zeros(self.n_examples), self._links(w)

        def part(first: int, last: int) -> None:
            if self.loss in SMOOTHED:
                smooth.smooth_losses(self.chains, w, self.gamma, self._outputs, first, last, out)
            elif self.loss == "hinge":
                hinge.losses(self.chains, w, links, first, last, out)
            elif self.edge_chains is not None:
                edges.losses(self.chains, self.edge_chains, w, first, last, out)
            else:
                gradient.losses(self.chains, w, first, last, out)

        self.over_examples(part)
        return out

    def _links(self, w: Floats) -> Any:
        """Nonzero transitions of packed weights, for the search of labelings of great loss.

        None where that reads whole tables.
        """
        if self.loss != "hinge" or not may_be_sparse(self.model):
            return None
        k, start = self.model.n_labels, self.chains.edge_start
        return links_of_table(w[start : start + k * k].reshape(k, k))

    def packed_primal(self, w: Floats) -> float:
        """:meth:`primal` for a solver that keeps its weights packed."""
        return self.penalized(w, float(self.chains.weights @ self.packed_losses(w)))

    @property
    def _outputs(self) -> int:
        """Labelings that share the smoothed maximum; 0 for all of them."""
        return 0 if self.smoother == "entropy" else self.top

    def primal(self, w: Floats) -> float:
        """The objective."""
        if not self.is_convex or self.edge_chains is not None:
            return self.primal_and_gradient(w)[0]
        return self.penalized(w, float(self.chains.weights @ self.losses(w)))

    def losses_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """The weighted sum of the losses and its gradient (of the hinge loss: a subgradient)."""
        from cliquewise._kernels.chain import edges as chain_edges
        from cliquewise._kernels.chain.gradient import gradient
        from cliquewise._kernels.chain.hinge import subgradient
        from cliquewise._kernels.chain.smooth import full_gradient, no_anchor

        form, chains, packed = self.form, self.chains, self.form.pack(w)
        partial, links = self.partial, self._links(packed)
        if partial is None:
            partial = np.empty((0, self.model.n_labels), dtype=bool)

        def part(first: int, last: int) -> tuple[float, Floats]:
            out = form.zeros()
            if self.loss == "hinge":
                loss = subgradient(chains, packed, links, first, last, out)
            elif self.loss in SMOOTHED:
                smooth = self.gamma, self._outputs, no_anchor(self.model.n_labels)
                loss = full_gradient(chains, packed, *smooth, first, last, out)[0]
            elif self.edge_chains is not None:
                loss = chain_edges.gradient(
                    chains, self.edge_chains, partial, packed, first, last, out
                )
            else:
                loss = gradient(chains, partial, packed, first, last, out)
            return float(loss), form.unpack(out)

        (total, slope), *others = self.over_examples(part)
        for loss, more in others:
            total += loss
            slope += more
        return total, slope

    # ---- rounding

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return int(self.data.lengths.max(initial=0))

    @cached_property
    def most_entries(self) -> int:
        """The largest number of attributes of a token and of the pair that ends there."""
        most = int(np.diff(self.chains.indptr).max(initial=0))
        if self.edge_chains is not None:
            most += int(np.diff(self.edge_chains.indptr).max(initial=0))
        return most

    def gradient_error_scale(self, w: Floats, tight: bool = False) -> Floats:
        """Return the error scale of the gradient; ``tight`` bounds the scores of each sequence."""
        largest = self.largest_by_row(w)
        if not tight or self.score_profile.roundings(largest) == 0:
            return super().gradient_error_scale(w)
        roundings = log_roundings(self._largest_scores(largest), self.data.lengths)
        more = self.feature_sizes(self.sequence_depths + roundings).deep - self.features.deep
        with np.errstate(over="ignore", invalid="ignore"):
            return self.weight_error_scale + self.C * np.maximum(more, 0.0)

    def _largest_scores(self, largest: Floats) -> Floats:
        """Return a bound of the scores of each sequence, from the largest weight of each row."""
        chains, n = self.chains, self.model.n_attributes
        scores = _absolute_scores(chains, largest[:n]) + largest[n]
        if self.edge_chains is not None:
            scores = scores + _absolute_scores(self.edge_chains, largest[n + 1 :])
        if len(chains.costs):
            scores = scores + np.abs(chains.costs).max(axis=1)
        elif self.loss != "log":
            scores = scores + 1.0
        out = np.zeros(self.n_examples)
        np.maximum.at(out, np.repeat(np.arange(self.n_examples), self.data.lengths), scores)
        return out

    @property
    def heaviest(self) -> float:
        """The largest weight of a sequence."""
        return float(self.chains.weights.max(initial=0.0))

    @cached_property
    def sequence_depths(self) -> Floats:
        """By sequence: roundings of a marginal, which is a product along it."""
        along = 2.0 * (self.model.n_labels + EXP) * self.data.lengths
        return np.asarray(along + SUM, dtype=np.float64)

    @cached_property
    def smoothed_summands(self) -> Floats:
        """:attr:`weight_error_scale` without tokens that hardly differ from the truth."""
        from cliquewise._kernels.chain.smooth import ROUNDING

        left_out = ROUNDING / UNIT * self.model.n_labels * self.features.total
        return self.weight_error_scale_for(np.inf) + self.C * left_out

    @property
    def weight_error_scale(self) -> Floats:
        """By row: C times all features, each times its roundings and those of the sum."""
        return self.smoothed_summands if self.loss in SMOOTHED else self._summands

    @cached_property
    def features(self) -> FeatureSizes:
        """Sizes of the features of all tokens, by row."""
        return self.feature_sizes(self.sequence_depths)

    def feature_sizes(self, depths: Floats) -> FeatureSizes:
        """The same where the marginals of each sequence were rounded so often."""
        from cliquewise._kernels.chain.features import feature_sizes

        data, weights, model = self.data, self.chains.weights, self.model
        followers, mass = data.followers, 2.0 * np.repeat(weights, data.lengths)
        depths = np.repeat(depths, data.lengths) + np.diff(self.chains.indptr)
        edges = np.zeros_like(mass)
        edges[followers] = mass[followers] + mass[followers - 1]
        own, pairs = np.zeros((model.n_attributes, 4)), np.zeros((model.n_edge_attributes, 4))
        self.over_attributes(lambda *part: feature_sizes(self.chains, mass, depths, *part, own))
        if self.edge_chains is not None:
            feature_sizes(self.edge_chains, edges, depths, 0, len(pairs), pairs)
        transitions = [[edges.sum(), edges @ depths, 2.0, 2.0 * len(followers)]]
        out = np.ascontiguousarray(np.concatenate([own, transitions, pairs]).T)
        out[3] += 8.0
        return FeatureSizes(*out)

    @cached_property
    def data_rounding_error(self) -> float:
        """Roundings of log partition functions, and of their sum over the sequences."""
        sizes = 1.0 + self.data.lengths
        if len(self.chains.costs):
            largest = np.append(0.0, np.cumsum(self.chains.costs.max(axis=1)))
            sizes = sizes + np.diff(largest[self.data.offsets])
        own = self.chains.weights @ (self.sequence_depths * sizes)
        return float(own) * float(1.0 + np.log(self.model.n_labels))


def _absolute_scores(chains: Any, largest: Floats) -> Floats:
    """Return ``sum_f |x_f| largest_f`` of every token."""
    values = np.ones(len(chains.indices)) if not len(chains.values) else np.abs(chains.values)
    terms = np.append(values * largest[chains.indices], 0.0)
    sums = np.add.reduceat(terms, chains.indptr[:-1]) if len(chains.indptr) > 1 else np.zeros(0)
    return np.where(np.diff(chains.indptr) > 0, sums, 0.0)


def _check_smoothing(gamma: float, smoother: str, top: int) -> None:
    if not (np.isfinite(gamma) and gamma > 0):
        raise DataError(f'gamma = {gamma}; it must be positive (loss="hinge" has none)')
    if smoother not in ("l2", "entropy"):
        raise DataError(f"smoother is l2 or entropy, not {smoother!r}")
    if top < 1:
        raise DataError(f"top = {top}; at least one labeling is needed")
