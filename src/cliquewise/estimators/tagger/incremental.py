"""Training that goes on: with more examples, from a file, with new attributes and new labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array

from cliquewise.data.conversion import SequenceEncoder
from cliquewise.data.dataset import Dataset
from cliquewise.data.labels import Labels
from cliquewise.data.shard_cache import ShardCache
from cliquewise.errors import CliquewiseError, DataError
from cliquewise.estimators._base import rollback_on_error
from cliquewise.estimators._costs import PSEUDO
from cliquewise.estimators._stored import Arrays, Header
from cliquewise.estimators.tagger.files import pack_chain
from cliquewise.estimators.tagger.pruning import ChainPruning
from cliquewise.estimators.tagger.tables import SampleInputs, laid_out
from cliquewise.problems.fingerprint import Fingerprint
from cliquewise.ragged import Ints
from cliquewise.solvers.base import State, get
from cliquewise.solvers.sdca import SDCA, DualAscent

#: Fields of a Dataset that files hold, where it has them.
_FIELDS = (
    "offsets", "indptr", "indices", "values", "labels", "allowed", "weights", "costs",
    "token_weights",
)  # fmt: skip


class PartialWarmStart(NamedTuple):
    """A state of other examples, and which of these are examples now: ``own[i]`` was ``old[i]``."""

    state: DualAscent
    own: Ints
    old: Ints


class ChainTraining(ChainPruning):
    """A tagger that keeps what it was trained on, in memory or in a file."""

    loss: str
    class_weight: Any
    solver_: str
    _training: tuple[Any, Any, Any]
    _stored: tuple[Arrays, Header]
    _to_file: Callable[[], tuple[Arrays, Header]]
    _begin: Callable[..., Any]
    _check_parameters: Callable[[], None]
    _fit: Callable[..., Any]

    @rollback_on_error
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        token_weight: Any = None,
    ) -> Self:
        """Add examples to the dual and train on all of them, from where training stood.

        New attributes and new labels are taken in. A tagger that was loaded needs a file with its
        examples and their dual variables: ``save(path, with_state=True)``.

        Parameters
        ----------
        X, y
            New sequences and their labels.
        classes : sequence, optional
            Further labels that will come; named in the first call they cost nothing later.
        sample_weight : array-like, optional
        token_weight : list of lists of numbers, optional
            As in :meth:`fit`. With ``min_count``, new attributes are counted in ``X`` alone, and
            examples of before are without them: what was too rare in these was not kept.
        """
        given = SampleInputs(sample_weight, token_weight)
        if "coef_" not in self.__dict__:
            return self._begin(X, y, classes, given)  # type: ignore[no-any-return]
        self._check_parameters()
        if isinstance(self.class_weight, str):
            raise DataError(
                f'class_weight = "{self.class_weight}" is made from all labels at once: give a '
                "dict of weights to partial_fit, or fit(..., warm_start=True) on all examples"
            )
        old, partial, state = self._kept_examples("partial_fit")
        self._check_same_weights(old)
        layout, X = laid_out(self, X)
        y = y if layout is None else layout.labels(y)
        encoder, labels = self._grown(X, y, classes)
        given = given.by_sequence(layout)
        new, new_partial = self._labeled(encoder.transform(X), labels, y, given)
        if partial is not None or new_partial is not None:
            raise DataError("partial_fit needs every label to be known")
        same, before = np.arange(len(old)), len(self.labels_)
        old = encoder.widened(old)
        warm = state
        if len(labels) > before:
            warm = _known(state, same, same)
            if old.allowed is not None or old.costs is not None:
                raise DataError(
                    "new labels cannot be added to examples that were trained with allowed labels "
                    "or with costs: fit anew, on all examples"
                )
        return self._fit(encoder, labels, (Dataset.concat([old, new]), None), warm)  # type: ignore[no-any-return]

    def _check_same_weights(self, old: Dataset) -> None:
        """Refuse new weights and costs of mistakes: the examples that are kept have the old."""
        now, before = self._settings(), self._objective
        changed = [name for name in ("cost", "class_weight") if now[name] != before[name]]
        by_token = (now["loss"] == PSEUDO) != (before["loss"] == PSEUDO)
        if by_token and (self.class_weight is not None or old.token_weights is not None):
            weighted = old.token_weights is None or bool((old.token_weights != 1.0).any())
            changed += ["loss"] if weighted else []
        if changed:
            raise DataError(
                f"{changed[0]} was changed, and the examples of before have their weights or costs "
                "by the old one: call fit(..., warm_start=True) with all examples"
            )

    def _fit_known(self, X: Any, y: Any, given: SampleInputs, callback: Any) -> Self:
        """Train on examples of which some are known, from the dual variables of these."""
        self._check_parameters()
        old, partial, state = self._kept_examples("warm_start")
        layout, X = laid_out(self, X)
        y = y if layout is None else layout.labels(y)
        encoder, labels = self._grown(X, y, None)
        given = given.by_sequence(layout)
        labeled = self._labeled(encoder.transform(X), labels, y, given)
        warm = None
        if partial is None and labeled[1] is None:
            warm = _known(state, *_matches(labeled[0], encoder.widened(old)))
        return self._fit(encoder, labels, labeled, warm, callback)  # type: ignore[no-any-return]

    def _grown(self, X: Any, y: Any, classes: Any) -> tuple[SequenceEncoder, Labels]:
        """Encoder and labels that know new attributes and labels, after those of before."""
        given = [*Labels.fit(y).classes, *(() if classes is None else Labels(classes).classes)]
        new = dict.fromkeys(c for c in given if c not in self.classes_)
        labels = Labels([*self.classes_, *new]) if new else self.labels_
        return self.encoder_.extended(X), labels

    @property
    def has_state(self) -> bool:
        """Whether it has kept what ``partial_fit`` goes on from: the examples and their duals."""
        kept = self.__dict__.get("_training")
        return "_stored" in self.__dict__ if kept is None else isinstance(kept[0], Dataset)

    def _kept(self, what: str) -> Any:
        """The examples and the state of the training before."""
        if "_training" not in self.__dict__ and "_stored" in self.__dict__:
            self._training = self._unpacked(*self._stored)
            del self._stored
        if "_training" not in self.__dict__:
            what, then = (
                ("save(path, with_state=True) writes the old examples", "save it before that")
                if what == "with_state=True"
                else (
                    f"{what} trains on the old examples and the new ones",
                    "save it by save(path, with_state=True)",
                )
            )
            raise DataError(
                f"{what}, and a tagger that was loaded, pruned, unpickled or sent to another "
                f"process has not kept the old ones: {then}, or fit it on all of them"
            )
        if isinstance(self._training[0], ShardCache):
            raise DataError(
                f"{what} does not add to shards that stay on disk; add files to their source and "
                "fit again"
            )
        return self._training

    def _kept_examples(self, what: str) -> Any:
        """The same, without a state whose examples are not those of this loss."""
        data, partial, state = self._kept(what)
        by_token = (self._objective["loss"] == PSEUDO, self.loss == PSEUDO)
        return data, partial, state if len({*by_token}) == 1 else None

    def _adopted(self, problem: Any, solver: Any, warm: Any) -> Any:
        """A state for this problem from one of other examples; None if the solver has none."""
        if not isinstance(warm, PartialWarmStart):
            return warm
        if not isinstance(solver, SDCA) or self.loss == PSEUDO:  # whose examples are tokens
            return None
        return solver.adopted(problem, warm.state, warm.own, warm.old)

    # ---- files

    def save(self, path: str | Path, *, dtype: str = "float64", with_state: bool = False) -> None:
        """Write the model to one file; see :func:`cliquewise.load`.

        Parameters
        ----------
        path : path
        dtype : {"float64", "float32", "float16"}, default="float64"
            What the weights are rounded to in the file; they are float64 again once loaded. The
            certificate in the file is that of the rounded weights where the training data are at
            hand (a tagger that was trained in this process), and otherwise proves nothing. Nor does
            it where parameters of the objective, such as ``C``, were changed after training. Those
            of the model, such as ``intercept``, are saved as they were in training.
        with_state : bool, default=False
            Also the training examples, as numbers, and the solver's state: the tagger that is
            loaded goes on with ``partial_fit`` or ``fit(..., warm_start=True)``. Whoever has the
            file has the examples.
        """
        self._check_fitted()
        parts = self._to_file()
        if with_state:
            data, partial, state = self._kept("with_state=True")
            if partial is not None or not isinstance(state, State) or state.origin is None:
                raise DataError(
                    "with_state=True needs a tagger that was trained on whole labels, on the CPU"
                )
            now = self._settings()
            for name in [n for n in now if n not in ("C", "l1_ratio")]:
                if now[name] != (before := self._objective[name]):
                    raise DataError(
                        f"the state is that of {name}={before!r:.60}, and it is {now[name]!r:.60} "
                        "now: call fit(..., warm_start=True) before you save it, or save it "
                        "before the change"
                    )
            model, encoder = self.model_, self.encoder_
            arrays, header = pack_chain(model, encoder, self.coef_, whole=True)
            more, state_header = pack_training(data, state, self.solver_)
            parts = {**arrays, **more}, {**parts[1], **header, "state": state_header}
        self._write(path, dtype, *parts)  # type: ignore[attr-defined]

    def _unpacked(self, arrays: Arrays, header: Any) -> tuple[Dataset, None, Any]:
        """Examples and state of a file; whatever is wrong with them is damage of the file."""
        try:
            return self._checked_training(arrays, header)
        except CliquewiseError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as e:
            raise DataError(f"the training that the file holds is damaged ({e!r})") from e

    def _checked_training(self, arrays: Arrays, header: Header) -> tuple[Dataset, None, Any]:
        """The state is checked as that of a checkpoint is."""
        data = _dataset(arrays, "data.", self.encoder_.n_features)
        if "edges.indptr" in arrays:
            edges = {**arrays, "edges.offsets": arrays["data.offsets"]}
            n = self.model_.n_edge_attributes
            data = replace(data, edges=_dataset(edges, "edges.", n))
        labels, n_labels = data.labels, self.model_.n_labels
        if labels is None or (len(labels) and not 0 <= labels.min() <= labels.max() < n_labels):
            raise DataError("the labels in the file are not those of the model")
        if data.allowed is not None and data.allowed.shape[1] != n_labels:
            raise DataError("the allowed labels in the file are not those of the model")
        trained = type(self)(**{**self.get_params(deep=False), **self._objective})  # type: ignore[attr-defined]
        problem = trained._chain_problem(self.model_, data, None)
        solver = get(str(header["solver"]), "chain")
        if header["dtype"] == "float32" and isinstance(solver, SDCA):
            solver = replace(solver, dtype="float32")
        own = {name[6:]: part for name, part in arrays.items() if name.startswith("duals.")}
        try:
            origin = Fingerprint.from_header(header["problem"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DataError("the file does not say of which problem its state is") from None
        state = solver.recompute_untrusted(problem, solver.resume(problem, own, origin))
        state.origin = problem.fingerprint()
        return data, None, state


def _known(state: Any, own: Ints, old: Ints) -> PartialWarmStart | None:
    return PartialWarmStart(state, own, old) if isinstance(state, DualAscent) else None


def pack_training(data: Dataset, state: Any, solver: str) -> tuple[Arrays, Header]:
    """Examples and dual variables as arrays."""
    arrays = {f"data.{name}": getattr(data, name) for name in _FIELDS}
    if data.edges is not None:
        arrays |= {f"edges.{n}": getattr(data.edges, n) for n in ("indptr", "indices", "values")}
    packed = get(solver, "chain").pack(state)
    arrays |= {f"duals.{name}": part for name, part in packed.items()}
    dtype = "float32" if any(part.dtype == np.float32 for part in packed.values()) else "float64"
    header = {"solver": solver, "dtype": dtype, "problem": state.origin.to_header()}
    return {name: part for name, part in arrays.items() if part is not None}, header


def _dataset(arrays: Arrays, part: str, n_features: int) -> Dataset:
    """Examples of a file, which the Dataset checks."""
    fields = {name: arrays.get(part + name) for name in _FIELDS}
    return Dataset(n_features=n_features, **fields)  # type: ignore[arg-type]


def _matches(data: Dataset, old: Dataset) -> tuple[Ints, Ints]:
    """Which examples are in both: by attributes, values and labels."""
    places = defaultdict(list)
    for i, key in enumerate(_keys(old)):
        places[key].append(i)
    found = [(i, places[key].pop()) for i, key in enumerate(_keys(data)) if places.get(key)]
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def _keys(data: Dataset) -> list[tuple[bytes, ...]]:
    """What tells examples apart, however their attributes were written down.

    Attributes of value zero tell nothing, and neither does the order of those of a token.
    """
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
