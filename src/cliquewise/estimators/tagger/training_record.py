"""TrainingRecord: what a tagger keeps of its training, to continue it and to certify weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.conversion import SequenceEncoder
from cliquewise.data.dataset import Dataset
from cliquewise.data.labels import Labels
from cliquewise.data.shard_cache import ShardCache
from cliquewise.errors import CliquewiseError, DataError
from cliquewise.estimators._stored import Arrays, Header
from cliquewise.estimators.tagger.chain_tagger import ChainTagger
from cliquewise.problems.base import Problem
from cliquewise.problems.fingerprint import Fingerprint
from cliquewise.solvers.base import Start, State
from cliquewise.solvers.checkpoints import unpack_untrusted
from cliquewise.solvers.registry import get
from cliquewise.solvers.sdca import SDCA

#: Arrays of a Dataset that files store, if it has them.
_FIELDS = (
    "offsets", "indptr", "indices", "values", "labels", "allowed", "weights", "costs",
    "token_weights",
)  # fmt: skip


@dataclass(frozen=True)
class Examples:
    """Encoded training examples.

    Attributes
    ----------
    encoder, labels
        What they were encoded by.
    data : Dataset or ShardCache
        In memory, or on disk.
    partial : bool array (n_tokens, K), optional
        The labels that agree with a partial annotation; None if every label is known.
    """

    encoder: SequenceEncoder
    labels: Labels
    data: Dataset | ShardCache
    partial: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class TrainingRecord:
    """The examples that a chain was trained on, and the final state of the solver.

    ``state`` is None if the dual variables do not fit the tagger's current loss.
    """

    data: Dataset | ShardCache
    partial: NDArray[np.bool_] | None
    state: State | Start | None

    @property
    def is_in_memory(self) -> bool:
        """Whether the examples are in memory, rather than shards on disk."""
        return isinstance(self.data, Dataset)


@dataclass(frozen=True)
class StoredRecord:
    """A training record in a model file, which is checked when it is first used."""

    arrays: Arrays
    header: Header

    def unpack(
        self, chain: ChainTagger, problem_of: Callable[[Dataset], Problem]
    ) -> TrainingRecord:
        """Return the record; raise a DataError if the file is damaged.

        Parameters
        ----------
        chain : ChainTagger
            The chain in the same file.
        problem_of : callable
            Returns the problem that was solved on the examples.
        """
        try:
            return self._checked(chain, problem_of)
        except CliquewiseError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as e:
            raise DataError(f"the training state in the file is damaged ({e!r})") from e

    def _checked(
        self, chain: ChainTagger, problem_of: Callable[[Dataset], Problem]
    ) -> TrainingRecord:
        arrays, header, model = self.arrays, self.header, chain.model_
        data = _dataset(arrays, "data.", chain.encoder_.n_features)
        if "edges.indptr" in arrays:
            edges = {**arrays, "edges.offsets": arrays["data.offsets"]}
            data = replace(data, edges=_dataset(edges, "edges.", model.n_edge_attributes))
        labels, n_labels = data.labels, model.n_labels
        if labels is None or (len(labels) and not 0 <= labels.min() <= labels.max() < n_labels):
            raise DataError("the labels in the file do not match the model")
        if data.allowed is not None and data.allowed.shape[1] != n_labels:
            raise DataError("the allowed labels in the file do not match the model")
        problem = problem_of(data)
        solver = get(str(header["solver"]), "chain")
        if header["dtype"] == "float32" and isinstance(solver, SDCA):
            solver = replace(solver, dtype="float32")
        own = {name[6:]: part for name, part in arrays.items() if name.startswith("duals.")}
        try:
            origin = Fingerprint.from_header(header["problem"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DataError("the file does not state which problem its state belongs to") from None
        # The state is validated like that of a checkpoint; its bounds are computed again.
        state = unpack_untrusted(solver, problem, own, origin)
        state.origin = problem.fingerprint()
        return TrainingRecord(data, None, state)


def stored_record(arrays: Arrays, header: Header) -> StoredRecord | None:
    """Return the training record of a model file; None if the file has none."""
    if "state" not in header:
        return None
    prefixes = ("data.", "edges.", "duals.")
    own = {name: part for name, part in arrays.items() if name.startswith(prefixes)}
    return StoredRecord(own, header["state"])


def pack_record(record: TrainingRecord, solver: str) -> tuple[Arrays, Header]:
    """Return the examples and the solver state as arrays and a header."""
    data, state = record.data, record.state
    if (
        not isinstance(data, Dataset)
        or record.partial is not None
        or not isinstance(state, State)
        or state.origin is None
    ):
        raise DataError(
            "with_state=True needs a tagger that was trained in memory, on the CPU, with every "
            "label known"
        )
    arrays = {f"data.{name}": getattr(data, name) for name in _FIELDS}
    if data.edges is not None:
        arrays |= {f"edges.{n}": getattr(data.edges, n) for n in ("indptr", "indices", "values")}
    packed = get(solver, "chain").pack(state)  # type: ignore[attr-defined]
    arrays |= {f"duals.{name}": part for name, part in packed.items()}
    dtype = "float32" if any(part.dtype == np.float32 for part in packed.values()) else "float64"
    header = {"solver": solver, "dtype": dtype, "problem": state.origin.to_header()}
    return {name: part for name, part in arrays.items() if part is not None}, header


def _dataset(arrays: Arrays, part: str, n_features: int) -> Dataset:
    """Return the examples of a file; the Dataset validates the arrays."""
    fields = {name: arrays.get(part + name) for name in _FIELDS}
    return Dataset(n_features=n_features, **fields)  # type: ignore[arg-type]
