"""Train a tagger on `Shards`: data that need not fit into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cliquewise.data.dataset import Dataset
from cliquewise.data.shard_cache import ShardCache, open_cache
from cliquewise.data.shards import Shards
from cliquewise.errors import DataError
from cliquewise.estimators._inputs import threads
from cliquewise.estimators.parameters import check_supported
from cliquewise.estimators.tagger.tables import SampleInputs
from cliquewise.estimators.tagger.training_record import Examples
from cliquewise.models.chain import ChainModel
from cliquewise.problems.chain import SMOOTHED
from cliquewise.problems.shards import ENTRY_BYTES, ShardedChainProblem

if TYPE_CHECKING:
    from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger

#: Shares of ``max_memory`` for the names of attributes, and for data that are kept in memory.
NAMES_SHARE, MEMORY_SHARE = 0.25, 0.5


def encode_shards(tagger: SequenceTagger, shards: Shards, y: Any, inputs: SampleInputs) -> Examples:
    """Encode shards, and load them into memory if they fit there."""
    given = [n for n, value in {"y": y, **inputs._asdict()}.items() if value is not None]
    if given:
        raise DataError(
            f"fit(shards) takes no {given[0]}: labels (and weights) come from the source itself"
        )
    check_supported(type(tagger), tagger.get_params(deep=False), "shards")
    limit = tagger.max_memory * 2**30
    cache = open_cache(
        shards, tagger.template, tagger.n_hash, tagger.min_count, NAMES_SHARE * limit
    )
    return Examples(cache.encoder, cache.labels, _load_if_fits(tagger, cache))


def _load_if_fits(tagger: SequenceTagger, cache: ShardCache) -> Dataset | ShardCache:
    """Return the data in memory if they and their dual variables fit there."""
    k, lengths = len(cache.labels), np.diff(cache.offsets)
    edges = float(np.count_nonzero(lengths > 1))
    needed = 16.0 * k * cache.n_tokens + 16.0 * k * k * edges + ENTRY_BYTES * cache.n_entries
    if needed <= MEMORY_SHARE * tagger.max_memory * 2**30 and tagger.loss not in SMOOTHED:
        return Dataset.concat(list(cache))
    return cache


def problem_on_disk(
    tagger: SequenceTagger, model: ChainModel, cache: ShardCache
) -> ShardedChainProblem:
    """Return the training problem for data on disk."""
    check_supported(type(tagger), tagger.get_params(deep=False), "shards on disk")
    limit, resume = tagger.max_memory * 2**30, bool(tagger.resume)
    return ShardedChainProblem(
        model, cache, tagger._number_C(), threads(tagger.n_jobs), tagger.loss, limit, resume
    )
