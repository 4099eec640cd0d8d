"""The pseudo-likelihood of chains: every token given the true labels of its neighbors.

    loss_t(w) = -log p(y_t | y_{t-1}, y_{t+1}, x),    with a weight of its own for every token

Besag 1975. It is the likelihood of other sequences: each token by itself between its neighbors,
whose labels are fixed and whose attributes, which say nothing then, are left out. So all that is
known of likelihoods, solvers and certificates holds. (The loss of a token given ``x`` alone, in
which the other labels are summed out, would not be convex.)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError
from cliquewise.models.chain import ChainModel
from cliquewise.ragged import Ints, gather, offsets_of


def token_by_token(model: ChainModel, data: Dataset) -> tuple[ChainModel, Dataset]:
    """The sequences of the pseudo-likelihood, and the model in which they may begin anywhere.

    Parameters
    ----------
    model : ChainModel
    data : Dataset
        With every label; ``token_weights`` multiply those of the examples.

    Returns
    -------
    model, data
        An example per token, in order.

    Examples
    --------
    >>> data = Dataset([0, 3], [0, 1, 2, 3], [0, 1, 0], None, 2, labels=[0, 1, 1])
    >>> _, tokens = token_by_token(ChainModel.build(data, 2), data)
    >>> tokens.lengths.tolist(), tokens.labels.tolist()
    ([2, 3, 2], [0, 1, 0, 1, 1, 1, 1])
    """
    labels, n, k = data.labels, data.n_tokens, model.n_labels
    if labels is None or (labels < 0).any():
        raise DataError("the pseudo-likelihood needs every label to be known")
    first, last = _ends(data)
    sizes = 3 - first.astype(np.int64) - last
    offsets = offsets_of(sizes)
    own = offsets[:-1] + ~first  # where the token itself is
    source = np.arange(offsets[-1]) - np.repeat(own - np.arange(n), sizes)
    is_own = np.zeros(len(source), dtype=bool)
    is_own[own] = True
    allowed = np.zeros((len(source), k), dtype=bool)
    allowed[np.arange(len(source)), labels[source]] = True
    allowed[own] = True if data.allowed is None else data.allowed
    allowed[own[first]] &= model.begin_allowed
    allowed[own[last]] &= model.end_allowed
    entries, indptr = _kept(data, source, is_own)
    weights = np.ones(len(data)) if data.weights is None else data.weights
    weights = np.repeat(weights, data.lengths)
    if data.token_weights is not None:
        weights = weights * data.token_weights
    everything = np.ones(k, dtype=bool)
    edges = None
    if data.edges is not None:
        follows = np.ones(len(source), dtype=bool)
        follows[offsets[:-1]] = False
        which, pointers = _kept(data.edges, source, follows)
        values = data.edges.values
        edges = replace(
            data.edges, offsets=offsets, indptr=pointers, indices=data.edges.indices[which],
            values=None if values is None else values[which],
        )  # fmt: skip
    spread = Dataset(
        offsets, indptr, data.indices[entries],
        None if data.values is None else data.values[entries], data.n_features,
        labels[source], allowed, weights, edges,
    )  # fmt: skip
    return replace(model, begin_allowed=everything, end_allowed=everything), spread


def _ends(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Which tokens are the first, and which the last of their sequence."""
    filled = np.flatnonzero(data.lengths > 0)
    first, last = np.zeros((2, data.n_tokens), dtype=bool)
    first[data.offsets[filled]] = True
    last[data.offsets[filled + 1] - 1] = True
    return first, last


def _kept(data: Dataset, source: Ints, there: np.ndarray) -> tuple[Ints, Ints]:
    """The entries of copies of tokens, of those that are to have them, and where they begin."""
    entries, _ = gather(data.indptr, source[there])
    counts = np.where(there, np.diff(data.indptr)[source], 0)
    return entries, offsets_of(counts)
