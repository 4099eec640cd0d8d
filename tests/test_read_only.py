"""Data, models and tables hold read-only arrays: nothing rewrites what is shared."""

import copy
import pickle

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import cliquewise as cw
from cliquewise.data import Dataset
from cliquewise.data.attribute_table import AttributeTable
from cliquewise.models.chain import ChainModel

#: Modules whose objects are immutable, and their classes that are scratch space or caches.
IMMUTABLE = ("cliquewise.data", "cliquewise.models")
CACHES = {"ItemCache", "RuleItems"}

DICTS = [[{"w": "the", "n": 0.0}, {"w": "dog", "n": 2.5}], [{"w": "a"}, {"w": "cat"}]]
ROWS = [[["the"], ["dog"]], [["a"], ["cat"]]]
ARRAYS = [np.eye(3)[[0, 1]], np.eye(3)[[2, 1]]]
MATRICES = [csr_matrix(x) for x in ARRAYS]
TAGS = [["D", "N"], ["D", "N"]]

CASES = {
    "dicts": (DICTS, {}, {}),
    "seen pairs": (DICTS, {"feature_pairs": "seen", "transitions": "seen"}, {}),
    "rows": (ROWS, {"template": "columns"}, {}),
    "edges": (ROWS, {"template": cw.data.Template.parse("U:%x[0,0]\nB:%x[0,0]")}, {}),
    "arrays": (ARRAYS, {}, {}),
    "matrices": (MATRICES, {}, {"sample_weight": [1.0, 2.0]}),
    "costs": (DICTS, {"loss": "hinge", "cost": {("D", "N"): 2.0}}, {}),
    "allowed": (DICTS, {}, {"allowed": [[None, {"N"}], [{"D", "N"}, None]]}),
    "tokens": (DICTS, {"loss": "pseudo_likelihood"}, {"token_weight": [[1, 2], [1, 1]]}),
    "online": (DICTS, {"solver": "sdca"}, {}),
}


def objects_in(root):
    """Yield all objects of the library that can be reached, and where."""
    seen, stack = set(), [(root, type(root).__name__)]
    while stack:
        found, place = stack.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if type(found).__module__.startswith("cliquewise"):
            yield found, place
            names = [*getattr(found, "__dict__", {}), *getattr(type(found), "__slots__", ())]
            parts = [(name, getattr(found, name, None)) for name in names]
        elif isinstance(found, dict):
            parts = list(found.items())
        elif isinstance(found, list | tuple):
            parts = list(enumerate(found))
        else:
            continue
        stack.extend((part, f"{place}.{name}") for name, part in parts)


def writable_arrays(root):
    """Return the places of writable arrays in immutable objects."""
    return [
        f"{place}.{name}"
        for found, place in objects_in(root)
        if type(found).__module__.startswith(IMMUTABLE) and type(found).__name__ not in CACHES
        for name, part in getattr(found, "__dict__", {}).items()
        if isinstance(part, np.ndarray) and part.flags.writeable
    ]


@pytest.mark.parametrize("case", CASES)
def test_what_a_tagger_holds_is_read_only(case, tmp_path):
    X, parameters, inputs = CASES[case]
    tagger = cw.SequenceTagger(random_state=0, **parameters).fit(X, TAGS, **inputs)
    tagger.predict(X)
    kinds = {type(found).__name__ for found, _ in objects_in(tagger)}
    assert {"ChainModel", "SequenceEncoder"} <= kinds  # the walk gets there
    assert writable_arrays(tagger) == []
    assert writable_arrays(copy.deepcopy(tagger)) == []
    assert writable_arrays(pickle.loads(pickle.dumps(tagger))) == []
    tagger.save(tmp_path / "m.cw")
    loaded = cw.load(tmp_path / "m.cw")
    assert loaded.predict(X) == tagger.predict(X)
    assert writable_arrays(loaded) == []


def test_no_array_of_a_dataset_can_be_written():
    edges = Dataset([0, 2], [0, 0, 1], [0], None, 1)
    data = Dataset(
        [0, 2], [0, 1, 2], [0, 1], [1.0, 2.0], 2, [0, 1], np.ones((2, 2), dtype=bool), [1.0], edges,
        1 - np.eye(2), [1.0, 2.0],
    )  # fmt: skip
    versions = {
        "made": data,
        "subset": data.subset([0]),
        "joined": Dataset.concat([data, data]),
        "relabeled": data.with_labels([1, 1]),
        "trusted": Dataset.trusted(*vars(data).values()),
        "copied": copy.deepcopy(data),
        "unpickled": pickle.loads(pickle.dumps(data)),
    }
    for name, version in versions.items():
        assert writable_arrays(version) == [], name
    with pytest.raises(ValueError, match="read-only"):
        data.indices[0] = 1
    data.features().eliminate_zeros()  # a copy


def test_arrays_of_the_caller_stay_writable():
    indices, labels = np.array([0, 1], dtype=np.int32), np.array([0, 1], dtype=np.int32)
    Dataset([0, 2], [0, 1, 2], indices, None, 2, labels)
    indices[0] = labels[0] = 1


def test_models_and_tables_are_read_only():
    data = Dataset([0, 2], [0, 1, 2], [0, 1], None, 2, [0, 1])
    model = ChainModel.build(data, 2, feature_pairs="seen")
    assert len(model.pair_label)
    table = AttributeTable(["a", "b"])
    assert list(table.numbers(["b"])) == [1]
    for found in (model, copy.deepcopy(model), table):
        assert writable_arrays(found) == []
