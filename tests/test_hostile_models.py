"""Model files of somebody who knows the format: nothing acts, nothing crashes.

Every file here has a right check sum. What loads must predict, or say in our words why not.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import cliquewise as cw
from cliquewise.data import Template
from cliquewise.errors import CliquewiseError, DataError, FormatError
from cliquewise.persistence import read_arrays, write_arrays

CASES = 150
rng = np.random.default_rng(0)
WORDS = [[["the", "D"], ["cat", "N"]], [["a", "D"], ["dog", "N"], ["runs", "V"]]]
TAGS = [["D", "N"], ["D", "N", "V"]]
LISTS = [[[f"w={w}", f"p={p}"] for w, p in s] for s in WORDS]
ROWS = rng.standard_normal((8, 3))
GRAPHS = [(rng.standard_normal((3, 2)), [(0, 1), (1, 2)]) for _ in range(4)]
TYPED = [(f, e, np.ones((2, 1)), [0, 1, 0]) for f, e in GRAPHS]
LABELS = [["in", "out", "in"], ["in", "in", "in"], ["out", "out", "out"], ["in", "out", "out"]]
SETS = (ROWS > 0).astype(int)
PAIRS = [rng.standard_normal((2, 3, 2)) for _ in range(4)]
TEMPLATE = Template.parse('U:%x[0,0]\nU2:%m[-1,1,"^."]\nB:%x[0,1]')

#: Models of all kinds: how to fit one, and what to ask it.
MODELS: dict[str, tuple[Any, Any]] = {
    "tagger": (lambda: cw.SequenceTagger(random_state=0).fit(LISTS, TAGS), LISTS),
    "tagger, seen pairs": (
        lambda: cw.SequenceTagger(
            random_state=0, feature_pairs="seen", transitions=np.ones((3, 3), bool)
        ).fit(LISTS, TAGS),
        LISTS,
    ),
    "tagger, template": (
        lambda: cw.SequenceTagger(template=TEMPLATE, solver="lbfgs").fit(WORDS, TAGS),
        WORDS,
    ),
    "tagger, hashed": (lambda: cw.SequenceTagger(n_hash=32).fit(LISTS, TAGS), LISTS),
    "classes": (
        lambda: cw.MulticlassClassifier(random_state=0).fit(ROWS, list("abcabcab")),
        ROWS,
    ),
    "graphs": (lambda: cw.GraphLabeler(random_state=0).fit(GRAPHS, LABELS), GRAPHS),
    "graphs, typed": (
        lambda: cw.GraphLabeler(random_state=0).fit(TYPED, LABELS),
        TYPED,
    ),
    "sets": (lambda: cw.MultiLabelClassifier(random_state=0).fit(ROWS, SETS), ROWS),
    "sets, many": (
        lambda: cw.MultiLabelClassifier(
            loss="hinge", solver="gdmm", pairs="co-occurrence", C=0.1, random_state=0
        ).fit(ROWS, SETS),
        ROWS,
    ),
    "matcher": (
        lambda: cw.Matcher(random_state=0).fit(PAIRS, [[0, 1], [1, 2], [2, 0], [0, 2]]),
        PAIRS,
    ),
    "ranker": (lambda: cw.CandidateRanker(random_state=0).fit([ROWS, ROWS], [0, 1]), [ROWS]),
}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Arrays and header of a sound file of each model, made when they are asked for."""
    folder, kept = tmp_path_factory.mktemp("models"), {}

    def get(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        if name not in kept:
            MODELS[name][0]().save(folder / "m.cw")
            kept[name] = read_arrays(folder / "m.cw")
        arrays, header = kept[name]
        return {k: np.array(a) for k, a in arrays.items()}, copy.deepcopy(header)

    return get


# ---- mutations

JUNK: list[Any] = [
    None, True, False, 0, 1, 2, 3, -1, 7, 10**6, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, 1e-320,
    float("nan"), float("inf"), "", "log", "auto", "relaxed", "sdca", "../../etc/passwd", "x" * 999,
    [], {}, [0], ["a", "b"], [[0, 1]], [[True]], {"a": 1}, [None], [[[]]], "U1000000000", "numbers",
    "attributes", ["D", "N", "V"], "|O", "(1000000000,)i4", {"text": "U:%x[0,0]", "outside": None},
]  # fmt: skip
NAMES = [
    "checkpoint", "checkpoint_seconds", "resume", "callback", "template", "n_jobs", "verbose",
    "n_hash", "vocabulary", "pairs", "pair_list", "kind", "transform", "n_features", "evil",
]  # fmt: skip


def places(node: Any) -> list[tuple[Any, Any]]:
    """All (container, key) of a tree of JSON."""
    found = []
    if isinstance(node, dict | list):
        keys = list(node) if isinstance(node, dict) else range(len(node))
        for key in keys:
            found += [(node, key), *places(node[key])]
    return found


def change_header(header: dict[str, Any], draw: np.random.Generator) -> None:
    spots = places(header)
    container, key = spots[draw.integers(len(spots))]
    junk = copy.deepcopy(JUNK[draw.integers(len(JUNK))])
    kind = draw.integers(5)
    if kind == 0 and isinstance(container, dict):
        del container[key]
    elif kind == 1 and isinstance(container, list):
        container.insert(int(draw.integers(len(container) + 1)), copy.deepcopy(container[key]))
    elif kind == 2 and isinstance(container, dict):
        container[NAMES[draw.integers(len(NAMES))]] = junk
    elif kind == 3:
        other, name = spots[draw.integers(len(spots))]
        container[key] = copy.deepcopy(other[name])
    else:
        container[key] = junk


def change_arrays(arrays: dict[str, Any], draw: np.random.Generator) -> None:
    name = str(draw.choice(sorted(arrays)))
    a = arrays[name]
    kind = draw.integers(8)
    if kind == 0:
        del arrays[name]
    elif kind == 1:
        types = [np.float64, np.float32, np.int64, np.int32, np.uint8, bool]
        with np.errstate(all="ignore"):
            arrays[name] = a.astype(types[draw.integers(len(types))])
    elif kind == 2:
        arrays[name] = a[: draw.integers(len(a) + 1)]
    elif kind == 3:
        arrays[name] = np.concatenate([a, a[: draw.integers(1, 4)]])
    elif kind == 4:
        arrays[name] = [a[..., None], a.ravel(), a.T, np.empty(0, a.dtype)][draw.integers(4)]
    elif kind == 5:
        arrays[str(draw.choice(["coef", "pairs", "trace", "vocabulary.bytes"]))] = a
    elif a.size:
        flat = a.reshape(-1)
        values = [-1, 0, 1, 2, 10**6, 2**31 - 1, -(2**31), 2**62, 1e150, 1e308, np.nan, -np.inf]
        with np.errstate(all="ignore"):
            where = draw.integers(a.size, size=draw.integers(1, 3))
            flat[where] = np.array(values[draw.integers(len(values))]).astype(a.dtype)


def asked(model: Any, X: Any) -> None:
    """Ask everything; answers are as many as the questions."""
    for method in ("predict", "predict_marginals", "predict_proba", "decision_function"):
        if not hasattr(model, method):
            continue
        with suppress(CliquewiseError):
            assert len(getattr(model, method)(X)) == len(X)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_mutated_model_is_refused_or_predicts(name, files, tmp_path):
    X, path, draw = MODELS[name][1], tmp_path / "m.cw", np.random.default_rng(len(name))
    loaded = 0
    for case in range(CASES):
        arrays, header = files(name)
        for _ in range(draw.integers(1, 4)):
            if draw.random() < 0.6:
                change_header(header, draw)
            else:
                change_arrays(arrays, draw)
        write_arrays(path, arrays, header)
        try:
            model = cw.load(path)
        except FormatError:
            continue
        loaded += 1
        assert getattr(model, "checkpoint", None) is None, case
        asked(model, X)
    assert loaded  # some changes do no harm: the test sees both ways


# ---- what was found by hand


@pytest.mark.parametrize("name", ["tagger", "graphs", "sets", "classes", "matcher", "ranker"])
@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("checkpoint", "victim"), ("resume", True), ("template", "/etc/passwd"), ("n_jobs", 10**6),
        ("verbose", 1), ("callback", "os.system"), ("C", -1.0), ("C", "1"), ("tol", None),
        ("max_epochs", float("nan")), ("solver", "adam"), ("solver", ["sdca"]), ("loss", "square"),
        ("random_state", -1), ("random_state", "x"), ("epsilon", "log"), ("epsilon", 2.0),
        ("gamma", -1.0), ("inference", "no such method"), ("intercept", "yes"), ("n_hash", 2**40),
        ("class_weight", "much"), ("max_memory", "all"),
    ],
)  # fmt: skip
def test_a_file_sets_nothing_that_acts_and_nothing_out_of_range(
    name, parameter, value, files, tmp_path
):
    arrays, header = files(name)
    header["params"][parameter] = value
    write_arrays(tmp_path / "m.cw", arrays, header)
    with pytest.raises(FormatError, match=parameter):
        cw.load(tmp_path / "m.cw")


def test_sizes_are_checked_before_anything_is_allocated(files, tmp_path):
    changes: dict[str, list[Any]] = {
        "classes": [lambda h: h.update(dtype="<U1000000000")],
        "graphs": [
            lambda h: h["model"].update(cardinalities=[10**9]),
            lambda h: h["model"].update(cardinalities=[3_000_000], pairwise="potts"),
            lambda h: h["model"].update(n_features=2**62),
            lambda h: h["model"].update(n_edge_features=10**12),
        ],
        "sets": [
            lambda h: h["state"].update(n_labels=10**9),
            lambda h: h["state"].update(names=["a"]),
            lambda h: h["state"].update(names="abc"),
        ],
        "tagger": [lambda h: h.update(n_edge_attributes=10**9)],
        "matcher": [lambda h: h.update(n_features=10**12)],
        "ranker": [lambda h: h.update(n_features=10**12)],
    }
    for name, some in changes.items():
        for change in some:
            arrays, header = files(name)
            change(header)
            write_arrays(tmp_path / "m.cw", arrays, header)
            with pytest.raises(FormatError):
                cw.load(tmp_path / "m.cw")


def test_pair_attributes_beyond_the_weights_are_rejected(files, tmp_path):
    arrays, header = files("tagger, template")
    header["n_edge_attributes"] -= 1
    arrays["coef"] = arrays["coef"][:-9]
    write_arrays(tmp_path / "m.cw", arrays, header)
    with pytest.raises(FormatError, match="do not fit"):
        cw.load(tmp_path / "m.cw")


def test_a_value_that_could_not_be_saved_is_refused_before_training():
    for parameters in ({"smoother": "l3"}, {"gamma": -1.0}, {"random_state": -1}):
        with pytest.raises(DataError, match=next(iter(parameters))):
            cw.SequenceTagger(**parameters).fit(LISTS, TAGS)


def test_what_could_not_be_loaded_is_not_written(tmp_path):
    tagger = cw.SequenceTagger(random_state=0).fit(LISTS, TAGS)
    with pytest.raises(DataError, match=r"tol must be .*not 'small'"):
        tagger.set_params(tol="small").save(tmp_path / "m.cw")
    assert not list(tmp_path.iterdir())
