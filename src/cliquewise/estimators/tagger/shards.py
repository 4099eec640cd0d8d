"""Training on data that need not fit into memory: what a tagger does with `Shards`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cliquewise.data.dataset import Dataset
from cliquewise.data.shard_cache import ShardCache, open_cache
from cliquewise.data.shards import Shards
from cliquewise.errors import DataError
from cliquewise.estimators.parameters import check_supported
from cliquewise.models.chain import ChainModel
from cliquewise.problems.chain import SMOOTHED
from cliquewise.problems.shards import ENTRY_BYTES, ShardedChainProblem

if TYPE_CHECKING:
    from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger

#: Share of the memory that names of attributes may take, and that data in memory may take.
NAMES_SHARE, MEMORY_SHARE = 0.25, 0.5


def encoded(tagger: SequenceTagger, shards: Shards, **others: Any) -> ShardCache:
    """The data of a fit, encoded; ``others`` are arguments that must not be given."""
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise DataError(
            f"fit(shards) takes no {given[0]}: labels (and weights) come from the source itself"
        )
    check_supported(type(tagger), tagger.get_params(deep=False), "shards")
    most = tagger.max_memory * 2**30
    return open_cache(shards, tagger.template, tagger.n_hash, tagger.min_count, NAMES_SHARE * most)


def kept(tagger: SequenceTagger, cache: ShardCache) -> Dataset | ShardCache:
    """The data as they are trained on: in memory if they fit there with their duals."""
    k, lengths = len(cache.labels), np.diff(cache.offsets)
    edges = float(np.count_nonzero(lengths > 1))
    needed = 16.0 * k * cache.n_tokens + 16.0 * k * k * edges + ENTRY_BYTES * cache.n_entries
    if needed <= MEMORY_SHARE * tagger.max_memory * 2**30 and tagger.loss not in SMOOTHED:
        return Dataset.concat(list(cache))
    return cache


def problem_on_disk(
    tagger: SequenceTagger, model: ChainModel, cache: ShardCache, jobs: int
) -> ShardedChainProblem:
    """The problem of data that stay on disk."""
    check_supported(type(tagger), tagger.get_params(deep=False), "shards on disk")
    return ShardedChainProblem(
        model, cache, tagger.C, jobs, tagger.loss, tagger.max_memory * 2**30, bool(tagger.resume)
    )
