"""Continue training: with more examples, new attributes and new labels, or from a file."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError
from cliquewise.estimators._costs import PSEUDO
from cliquewise.estimators.tagger.encoding import encode_with_new_names
from cliquewise.estimators.tagger.tables import SampleInputs
from cliquewise.estimators.tagger.training_record import Examples, StoredRecord, TrainingRecord
from cliquewise.problems.base import Problem
from cliquewise.ragged import Ints
from cliquewise.solvers.base import AnySolver, Start, State
from cliquewise.solvers.sdca import SDCA, DualAscent

if TYPE_CHECKING:
    from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger


class PartialWarmStart(NamedTuple):
    """A solver state of other examples.

    The new example ``own[i]`` equals the example ``old[i]`` of the state.
    """

    state: DualAscent
    own: Ints
    old: Ints


#: Where a solver starts: its own state, weights, or the dual variables of some examples.
WarmStart = State | Start | PartialWarmStart | None


def add_examples(
    tagger: SequenceTagger, X: Any, y: Any, inputs: SampleInputs, classes: Any
) -> tuple[Examples, WarmStart]:
    """Return the old and the new examples, and a start from the state of the old ones.

    Parameters
    ----------
    tagger : SequenceTagger
        Was trained on the old examples.
    X, y, inputs
        The new examples.
    classes : sequence, optional
        Further labels.
    """
    if isinstance(tagger.class_weight, str):
        raise DataError(
            f'class_weight = "{tagger.class_weight}" depends on all labels at once: give a '
            "dict of weights to partial_fit, or call fit(..., warm_start=True) on all examples"
        )
    record = _usable_record(tagger, "partial_fit")
    assert isinstance(record.data, Dataset)
    _check_same_weights(tagger, record.data)
    new = encode_with_new_names(tagger, X, y, inputs, classes)
    assert isinstance(new.data, Dataset)
    if record.partial is not None or new.partial is not None:
        raise DataError("partial_fit needs a label for every token")
    old, start = new.encoder.widened(record.data), record.state
    has_new_labels = len(new.labels) > len(tagger.classes_)
    if has_new_labels and (old.allowed is not None or old.costs is not None):
        raise DataError(
            "new labels cannot be added to examples that were trained with allowed labels "
            "or with costs: call fit on all examples"
        )
    combined = replace(new, data=Dataset.concat([old, new.data]))
    if not has_new_labels:
        return combined, start
    same = np.arange(len(old))
    return combined, partial_warm_start(start, same, same)


def reuse_dual_variables(
    tagger: SequenceTagger, X: Any, y: Any, inputs: SampleInputs
) -> tuple[Examples, WarmStart]:
    """Return the examples, and a start from the dual variables of those trained on before."""
    record = _usable_record(tagger, "warm_start")
    new = encode_with_new_names(tagger, X, y, inputs)
    if record.partial is not None or new.partial is not None:
        return new, None
    assert isinstance(record.data, Dataset) and isinstance(new.data, Dataset)
    own, old = match_examples(new.data, new.encoder.widened(record.data))
    return new, partial_warm_start(record.state, own, old)


# ---- the training record


def training_record(tagger: SequenceTagger, purpose: str) -> TrainingRecord:
    """Return the tagger's training record; raise an error if it is not available in memory."""
    record = tagger._record
    if isinstance(record, StoredRecord):
        record = tagger._record = record.unpack(tagger.chain_, tagger._recorded_problem)
    if record is None:
        why, remedy = (
            ("writes the old examples", "save it before")
            if purpose == "with_state=True"
            else (
                "trains on the old examples and the new ones",
                "save it with save(path, with_state=True)",
            )
        )
        raise DataError(
            f"{purpose} {why}, and a tagger that was loaded, pruned, unpickled or sent to "
            f"another process does not have the old ones: {remedy}, or fit it on all examples"
        )
    if not record.is_in_memory:
        raise DataError(
            f"{purpose} is not supported for shards on disk; add files to their source and fit "
            "again"
        )
    return record


def _usable_record(tagger: SequenceTagger, purpose: str) -> TrainingRecord:
    """Return the training record, without its state if the loss has other dual variables now."""
    record = training_record(tagger, purpose)
    was_pseudo, is_pseudo = tagger._objective["loss"] == PSEUDO, tagger.loss == PSEUDO
    return record if was_pseudo == is_pseudo else replace(record, state=None)


def check_same_settings(tagger: SequenceTagger) -> None:
    """Raise an error if the solver state belongs to other parameters of the objective."""
    for name, now in tagger._parameters_with_role().items():
        before = tagger._objective[name]
        if now != before and name not in ("C", "l1_ratio"):
            raise DataError(
                f"the state belongs to {name}={before!r:.60}, which is now {now!r:.60}: call "
                "fit(..., warm_start=True) before saving, or save before the change"
            )


def _check_same_weights(tagger: SequenceTagger, old: Dataset) -> None:
    """Raise an error if weights or costs changed: the old examples have the previous ones."""
    now, before = tagger._parameters_with_role(), tagger._objective
    changed = [name for name in ("cost", "class_weight") if now[name] != before[name]]
    by_token = (now["loss"] == PSEUDO) != (before["loss"] == PSEUDO)
    if by_token and (tagger.class_weight is not None or old.token_weights is not None):
        is_weighted = old.token_weights is None or bool((old.token_weights != 1.0).any())
        changed += ["loss"] if is_weighted else []
    if changed:
        raise DataError(
            f"{changed[0]} was changed, but the earlier examples have the previous weights or "
            "costs: call fit(..., warm_start=True) with all examples"
        )


# ---- dual variables of some examples


def partial_warm_start(
    state: State | Start | None, own: Ints, old: Ints
) -> PartialWarmStart | None:
    """Return a start from the dual variables of some examples; None if the state has none."""
    return PartialWarmStart(state, own, old) if isinstance(state, DualAscent) else None


def adopt_duals(problem: Problem, solver: AnySolver, start: PartialWarmStart) -> DualAscent | None:
    """Return a solver state for the problem; None if the solver has no dual variables per example.

    Parameters
    ----------
    problem : Problem
    solver : Solver
    start : PartialWarmStart
    """
    if not isinstance(solver, SDCA):
        return None
    return solver.adopt(problem, start.state, start.own, start.old)


def match_examples(data: Dataset, old: Dataset) -> tuple[Ints, Ints]:
    """Return the numbers of the examples that are in both datasets, in each of them.

    Examples are equal if their attributes, values and labels are. Attributes with value zero, and
    the order of the attributes of a token, do not matter.
    """
    places = defaultdict(list)
    for i, key in enumerate(_keys(old)):
        places[key].append(i)
    found = [(i, places[key].pop()) for i, key in enumerate(_keys(data)) if places.get(key)]
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def _keys(data: Dataset) -> list[tuple[bytes, ...]]:
    """Return a key per example; equal examples have equal keys."""
    parts = [data] if data.edges is None else [data, data.edges]
    rows = [_canonical(part) for part in parts]
    assert data.labels is not None
    keys = []
    for a, b in zip(data.offsets[:-1].tolist(), data.offsets[1:].tolist()):
        key = [data.labels[a:b].tobytes()]
        for own in rows:
            here = slice(int(own.indptr[a]), int(own.indptr[b]))
            key += [np.diff(own.indptr[a : b + 1]).tobytes(), own.indices[here].tobytes()]
            key.append(own.data[here].tobytes())
        keys.append(tuple(key))
    return keys


def _canonical(data: Dataset) -> csr_array:
    """Return the attributes of all tokens in sorted order, without duplicates and zeros.

    ``sum_duplicates`` and ``eliminate_zeros`` rewrite all three arrays in place, so the matrix must
    not share any of them with the dataset.
    """
    values = np.ones(len(data.indices)) if data.values is None else data.values.astype(np.float64)
    shape = (data.n_tokens, data.n_features)
    rows = csr_array((values, data.indices, data.indptr), shape=shape, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return rows
