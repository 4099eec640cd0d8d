"""Labels: class names to numbers and back, with unknown and partial labels."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from itertools import chain, pairwise, repeat
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cliquewise.data.dataset import UNKNOWN, token_place
from cliquewise.data.flatten import in_order
from cliquewise.errors import DataError

_PARTIAL = (set, frozenset, tuple)
_NOT_A_CLASS = -2
#: The label of tokens that have none, in PyTorch and Hugging Face's datasets.
IGNORED = -100


class Labels:
    """The classes of a labeling task.

    A label is any hashable value but None and tuples (strings with spaces, integers, ...). In
    data, None stands for an unknown label and a set, frozenset or tuple of labels for "one of
    these".

    Parameters
    ----------
    classes : iterable
        The classes in the order of their numbers.

    Examples
    --------
    >>> labels = Labels.fit([["O", "B-PER"], [None, {"O", "B-LOC"}]])
    >>> labels.classes
    ['B-LOC', 'B-PER', 'O']
    >>> labels.encode([["O", None]], [0, 2])[0]
    array([ 2, -1], dtype=int32)
    >>> labels.decode([2, 1], [0, 2])
    [['O', 'B-PER']]
    """

    def __init__(self, classes: Iterable[Hashable]):
        self.classes: list[Any] = [_plain(c) for c in classes]
        self._index = {c: number for number, c in enumerate(self.classes)}
        if len(self._index) != len(self.classes):
            raise DataError("the list of classes names a class twice")

    @classmethod
    def fit(cls, y: Any) -> Labels:
        """Collect the classes of `y`, sorted if they can be sorted, else as they come."""
        flat = list(chain.from_iterable(_sequences(y)))
        try:
            seen = dict.fromkeys(flat)
        except TypeError:
            seen = dict.fromkeys(_freeze(flat))
        parts = [in_order(label) if isinstance(label, _PARTIAL) else (label,) for label in seen]
        classes = list(dict.fromkeys(_plain(label) for label in chain.from_iterable(parts)))
        classes = [label for label in classes if label is not None]
        if any(label != label for label in classes):
            raise DataError("a label is NaN; use None for labels that are not known")
        _check_classes(classes)
        with suppress(TypeError):
            classes.sort()
        return cls(classes)

    def __len__(self) -> int:
        return len(self.classes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Labels) and self.classes == other.classes

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Labels({self.classes!r:.200})"

    def encode(
        self, y: Any, offsets: ArrayLike, unknown: Literal["error", -1] = "error"
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_] | None]:
        """Number the labels of `y`.

        Parameters
        ----------
        y : list of sequences of labels, or 2-D array
            One label for each token.
        offsets : array of int (n_examples + 1)
            Where each example's tokens begin; lengths are compared with it.
        unknown : {"error", -1}
            What a label that is not a class becomes.

        Returns
        -------
        labels : int32 array (n_tokens)
            Class numbers, -1 where the label is None, partial or (on request) not a class.
        allowed : bool array (n_tokens, n_classes) or None
            The possible labels; None if no label is partial.
        """
        bounds = np.asarray(offsets, dtype=np.int64)
        sequences = _sequences(y)
        _check_lengths(sequences, bounds)
        flat = list(chain.from_iterable(sequences))
        try:
            found = map(self._index.get, flat, repeat(_NOT_A_CLASS))
            numbers = np.fromiter(found, np.int32, len(flat))
        except TypeError:  # a set is not hashable
            found = map(self._index.get, _freeze(flat), repeat(_NOT_A_CLASS))
            numbers = np.fromiter(found, np.int32, len(flat))
        odd = np.flatnonzero(numbers == _NOT_A_CLASS)
        if len(odd) == 0:
            return numbers, None
        return self._encode_odd(numbers, odd, flat, bounds, unknown)

    def _encode_odd(
        self,
        numbers: NDArray[np.int32],
        odd: NDArray[np.int64],
        flat: list[Any],
        offsets: NDArray[np.int64],
        unknown: Literal["error", -1],
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_] | None]:
        """Deal with the labels that are not classes: None, partial, never seen."""
        allowed: NDArray[np.bool_] | None = None
        for token in odd.tolist():
            label = flat[token]
            numbers[token] = UNKNOWN
            if isinstance(label, _PARTIAL):
                choices = [self._index[c] for c in label if c in self._index]
                strangers = [c for c in label if c not in self._index]
                if not choices or (strangers and unknown == "error"):
                    what = (
                        f"{strangers[0]!r} is not a class" if strangers else "no label is allowed"
                    )
                    raise DataError(f"{token_place(offsets, token)}: {what}; {self._known()}")
                if len(choices) == 1:
                    numbers[token] = choices[0]
                    continue
                if allowed is None:
                    allowed = np.ones((len(flat), len(self.classes)), dtype=np.bool_)
                allowed[token] = False
                allowed[token, choices] = True
            elif label is not None and unknown == "error":
                raise DataError(
                    f"{token_place(offsets, token)}: the label {label!r:.80} is not a class; "
                    f"{self._known()}"
                )
        return numbers, allowed

    def _known(self) -> str:
        shown = ", ".join(repr(c) for c in self.classes[:10])
        return f"the classes are {shown}" + (", ..." if len(self.classes) > 10 else "")

    def decode(self, numbers: ArrayLike, offsets: ArrayLike) -> list[list[Any]]:
        """Return the labels of each example; -1 becomes None."""
        names = np.empty(len(self.classes) + 1, dtype=object)
        names[:-1] = self.classes  # the last place, index -1, stays None
        flat = names[np.asarray(numbers)].tolist()
        bounds = np.asarray(offsets).tolist()
        return Labelings(flat[a:b] for a, b in pairwise(bounds))


class Labelings(list[Any]):
    """Labels of examples, which NumPy takes even if their lengths differ: as a row of lists.

    scikit-learn's ``cross_val_predict`` joins the predictions of its folds that way.
    """

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        lists = list(self)
        if len({*map(len, lists)}) <= 1:
            return np.array(lists, dtype=dtype)
        row = np.empty(len(lists), dtype=object)
        row[:] = lists
        return row


def _check_classes(classes: list[Any]) -> None:
    """Refuse what is no class, though it could be one."""
    if classes and all(isinstance(label, float) for label in classes):
        odd = next((label for label in classes if not label.is_integer()), None)
        if odd is not None:
            raise DataError(
                f"a label is {odd!r}, a measurement: labels are names, or whole numbers"
            )
    if any(isinstance(label, int) and label == IGNORED for label in classes):
        raise DataError(
            f"a label is {IGNORED}, by which PyTorch and Hugging Face mark tokens that have none: "
            "leave these tokens out, or give None for labels that are not known"
        )


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def _freeze(labels: Iterable[Any]) -> Iterable[Any]:
    for label in labels:
        frozen = frozenset(label) if isinstance(label, set) else label
        try:
            hash(frozen)
        except TypeError:
            raise DataError(
                f"a label cannot be a {type(label).__name__}: {label!r:.80}; use strings, "
                "numbers, None (unknown) or a set of labels (one of these)"
            ) from None
        yield frozen


def _sequences(y: Any) -> list[Sequence[Any]]:
    """`y` as a list of lists; arrays become lists, whose items are plain Python values."""
    if isinstance(y, (str, bytes)) or not hasattr(y, "__iter__"):
        raise DataError(f"y must be a list of sequences of labels, not {type(y).__name__}")
    sequences: list[Sequence[Any]] = []
    for i, labels in enumerate(y):
        if hasattr(labels, "tolist") and not isinstance(labels, np.generic):  # arrays, Series
            labels = labels.tolist()
        if not isinstance(labels, (list, tuple)):
            raise DataError(
                f"example {i}: its labels must be a list, one label for each token, "
                f"not {type(labels).__name__} {labels!r:.60} (cliquewise.data.split_table cuts one "
                "long table into sequences)"
            )
        sequences.append(labels)
    return sequences


def _check_lengths(sequences: Sequence[Sequence[Any]], offsets: NDArray[np.int64]) -> None:
    n = len(offsets) - 1
    if len(sequences) != n:
        raise DataError(f"y has {len(sequences)} sequences, X has {n}")
    lengths = np.fromiter(map(len, sequences), np.int64, n)
    wrong = np.flatnonzero(lengths != np.diff(offsets))
    if len(wrong):
        i = int(wrong[0])
        tokens = int(offsets[i + 1] - offsets[i])
        raise DataError(f"example {i} has {tokens} tokens but {lengths[i]} labels")
