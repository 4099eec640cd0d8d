"""Model files: every kind of model comes back, and no damage goes unnoticed."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import zlib
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

import cliquewise as cw
from cliquewise import persistence
from cliquewise.data import Columns, Template
from cliquewise.errors import DataError, FormatError

WORDS = [[["the", "cat"][t % 2] for t in range(n)] for n in (2, 3, 1)]
Y = [[["D", "N"][t % 2] for t in range(n)] for n in (2, 3, 1)]
STRINGS = [[[f"w={w}", "é 日\n"] for w in x] for x in WORDS]
ARRAYS = [np.array([[w == "cat", 1.5] for w in x], dtype=float) for x in WORDS]
ROWS = [[[w, w[:1]] for w in x] for x in WORDS]
COLUMNS = Columns.from_rows(ROWS)

MODELS = {
    "strings": (STRINGS, {}),
    "dicts": ([[{"w": w, "n": len(w)} for w in x] for x in WORDS], {}),
    "seen pairs": (STRINGS, {"feature_pairs": "seen", "transitions": "seen"}),
    "hashed": (STRINGS, {"n_hash": 64}),
    "arrays": (ARRAYS, {"intercept": False, "boundary_weights": False}),
    "template": (ROWS, {"template": Template.parse("U:%x[0,0]/%x[-1,1]\nB")}),
    "template, hashed": (ROWS, {"template": Template.parse("U:%x[0,0]"), "n_hash": 99}),
    "built-in template": (COLUMNS, {"template": "chunking"}),
    "built-in template of two columns": (COLUMNS, {"template": "ner", "min_count": 2}),
    "mask": (STRINGS, {"transitions": np.array([[False, True], [True, True]])}),
    "numpy parameters": (STRINGS, {"C": np.float64(2), "max_epochs": np.int64(50)}),
    "lbfgs": (STRINGS, {"solver": "lbfgs", "max_seconds": np.inf}),
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_comes_back_and_answers_the_same(kind, tmp_path):
    X, parameters = MODELS[kind]
    tagger = cw.SequenceTagger(random_state=0, **parameters).fit(X, Y)
    tagger.save(tmp_path / "model.cw")
    copy = cw.load(tmp_path / "model.cw")
    assert copy.predict(X) == tagger.predict(X)
    for p, q in zip(copy.predict_marginals(X), tagger.predict_marginals(X), strict=True):
        np.testing.assert_array_equal(p, q)
    assert copy.certificate_ == tagger.certificate_
    assert copy.classes_ == tagger.classes_ and copy.C == tagger.C
    assert copy.feature_names() == tagger.feature_names()
    assert copy.solver_ == tagger.solver_
    copy.save(tmp_path / "again.cw")
    assert (tmp_path / "again.cw").read_bytes() == (tmp_path / "model.cw").read_bytes()


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.cw"
    cw.SequenceTagger(random_state=0, feature_pairs="seen").fit(STRINGS, Y).save(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("damage") / "model.cw"


def refuse(path, match=None):
    with pytest.raises(FormatError, match=match) as caught:
        cw.load(path)
    assert str(path) in str(caught.value)


@given(data=st.data())
def test_a_flipped_byte_is_noticed(content, place, data):
    at = data.draw(st.integers(0, len(content) - 1))
    flip = data.draw(st.integers(1, 255))
    place.write_bytes(content[:at] + bytes([content[at] ^ flip]) + content[at + 1 :])
    refuse(place)


@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_noticed(content, place, share):
    place.write_bytes(content[: int(share * len(content))])
    refuse(place)


@given(junk=st.binary(max_size=300))
def test_any_other_bytes_are_rejected(place, junk):
    place.write_bytes(junk)
    refuse(place)


def test_more_bytes_than_there_should_be_are_noticed(content, place):
    place.write_bytes(content + b"x")
    refuse(place)


def test_foreign_and_later_files_say_so(tmp_path, content):
    path = tmp_path / "file"
    save_file({"x": np.zeros(3)}, path)
    refuse(path, "not one of cliquewise")
    persistence.write_arrays(path, {"x": np.zeros(3)}, {"kind": "recipe"})
    refuse(path, "recipe")
    persistence.write_arrays(path, {}, {"version": persistence.VERSION + 1})
    refuse(path, "update cliquewise")
    refuse(tmp_path / "missing", "no such file")
    refuse(tmp_path, "no such file")
    path.write_bytes(b"\x80\x04\x95 a pickle that must not be run")
    refuse(path, "a pickle: open it with joblib.load")


# Files with a right check sum, made by somebody who knows the format and means harm.
CHANGES = {
    "no weights": lambda a, h: a.pop("coef"),
    "too few weights": lambda a, h: a.update(coef=a["coef"][:-1]),
    "single precision": lambda a, h: a.update(coef=a["coef"].astype(np.float32)),
    "not a number": lambda a, h: a.update(coef=a["coef"] * np.nan),
    "half precision that is not named": lambda a, h: a.update(coef=a["coef"].astype(np.float16)),
    "half precision that is not there": lambda a, h: h.update(weights="float16"),
    "weights of an unknown type": lambda a, h: h.update(weights=["float64"]),
    "labels beyond": lambda a, h: a["pairs.labels"].__setitem__(0, 99),
    "labels below": lambda a, h: a.update(
        {"pairs.labels": a["pairs.labels"].astype(np.uint32) - np.uint32(2)}
    ),
    "pairs beyond": lambda a, h: a["pairs.counts"].__setitem__(1, 200),
    "pairs go back": lambda a, h: a.update({"pairs.counts": a["pairs.counts"].astype(np.int8)}),
    "pairs of another type": lambda a, h: a.update(
        {"pairs.labels": a["pairs.labels"].astype(np.int64)}
    ),
    "no pairs": lambda a, h: a.update({"pairs.counts": np.zeros(0, dtype=np.uint8)}),
    "pairs without labels": lambda a, h: a.pop("pairs.labels"),
    "masks of another shape": lambda a, h: a.update({"model.edge_free": np.ones((1, 1), bool)}),
    "masks as numbers": lambda a, h: a.update({"model.begin_allowed": np.ones(2)}),
    "names run over": lambda a, h: a["vocabulary.sizes"].__setitem__(1, 10**6),
    "fewer names than weights": lambda a, h: a["vocabulary.sizes"].__setitem__(0, 1),
    "names below zero": lambda a, h: a["vocabulary.sizes"].__setitem__(0, -1),
    "no sizes of names": lambda a, h: a.pop("vocabulary.sizes"),
    "a table of names beyond": lambda a, h: a["vocabulary.numbers"].__setitem__(0, 99),
    "a table of names below": lambda a, h: a["vocabulary.numbers"].__setitem__(0, -1),
    "a table without room": lambda a, h: a["vocabulary.slots"].__setitem__(slice(None), 255),
    "a table of another size": lambda a, h: a.update({"vocabulary.slots": np.zeros(9, np.uint8)}),
    "a table without hashes": lambda a, h: a.pop("vocabulary.hashes"),
    "names missing": lambda a, h: a.pop("vocabulary.names"),
    "a name twice": lambda a, h: h.update(classes=["D", "D"]),
    "no classes": lambda a, h: h.update(classes=[]),
    "classes that are lists": lambda a, h: h.update(classes=[["D"], ["N"]]),
    "classes that are a number": lambda a, h: h.update(classes=2),
    "attributes of a wrong number": lambda a, h: h.update(n_attributes=10**9),
    "attributes that are text": lambda a, h: h.update(n_attributes="many"),
    "unknown parameters": lambda a, h: h["params"].update(evil=1),
    "parameters that are a list": lambda a, h: h.update(params=[1]),
    "another encoder": lambda a, h: h["encoder"].update(kind="os.system"),
    "an encoder without a state": lambda a, h: h["encoder"].pop("state"),
    "features of a wrong number": lambda a, h: h["encoder"]["state"].update(n_features=1),
    "hashing into too many": lambda a, h: h["encoder"]["state"].update(n_hash=2**40),
    "a kind of input that is not known": lambda a, h: h["encoder"]["state"].update(kind="x"),
    "a certificate of other fields": lambda a, h: h.update(certificate={"proof": 1}),
    "another estimator": lambda a, h: h.update(kind="MulticlassClassifier"),
    "no estimator": lambda a, h: h.update(kind=["SequenceTagger"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_forged_file_is_refused_before_a_kernel_sees_it(change, content, tmp_path):
    path = tmp_path / "model.cw"
    path.write_bytes(content)
    arrays, header = persistence.read_arrays(path)
    arrays = {name: np.array(array) for name, array in arrays.items()}
    CHANGES[change](arrays, header)
    persistence.write_arrays(path, arrays, header)
    refuse(path)


LATER = {
    "names are not text": lambda a: zlib.compress(a[:8] + b"\xff" * (len(a) - 8)),
    "names are not packed": lambda a: b"no such thing",
    "names are too many": lambda a: zlib.compress(a + b"x"),
    "names are too few": lambda a: zlib.compress(a[:-1]),
    "a name twice": lambda a: zlib.compress(a[:8] + b"abab"),
}


@pytest.mark.parametrize("change", LATER)
def test_forged_names_are_refused_when_they_are_read(change, tmp_path):
    path = tmp_path / "model.cw"
    X = [[["ab"], ["cd"]]]
    cw.SequenceTagger(random_state=0).fit(X, [["A", "B"]]).save(path)
    arrays, header = persistence.read_arrays(path)
    raw = zlib.decompress(arrays["vocabulary.names"].tobytes())
    arrays["vocabulary.names"] = np.frombuffer(LATER[change](raw), np.uint8)
    persistence.write_arrays(path, arrays, header)
    model = cw.load(path)
    assert model.predict(X) == [["A", "B"]]  # which needs no names
    with pytest.raises(FormatError):
        model.feature_names()


def as_version_2(tagger):
    """Arrays and header as the library wrote them before."""
    header = tagger._to_file()[1]
    model, names = tagger.model_, tagger.encoder_.names()
    kept = ("edge_free", "edge_allowed", "begin_allowed", "end_allowed")
    kept = {f"model.{n}": getattr(model, n) for n in (*kept, "pair_start", "pair_label")}
    packed = persistence.pack_strings("vocabulary", names)
    trace = np.stack([tagger.trace_[c] for c in tagger.trace_.columns], axis=1)
    shared = {
        "version": 2, "kind": "SequenceTagger", "params": {"feature_pairs": "seen"},
        "certificate": asdict(tagger.certificate_), "solver": tagger.solver_, "n_iter": 3,
        "trace": list(tagger.trace_.columns),
    }  # fmt: skip
    return {"coef": tagger.coef_, **kept, **packed, "trace": trace}, shared | header


def test_a_file_of_version_2_still_loads(tmp_path):
    path = tmp_path / "model.cw"
    tagger = cw.SequenceTagger(random_state=0, feature_pairs="seen").fit(STRINGS, Y)
    persistence.write_arrays(path, *as_version_2(tagger))
    copy = cw.load(path)
    np.testing.assert_array_equal(copy.coef_, tagger.coef_)
    assert copy.predict(STRINGS) == tagger.predict(STRINGS)
    assert copy.feature_names() == tagger.feature_names()
    content = path.read_bytes()
    path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    refuse(path, "checksum")


def test_blocks_that_trade_places_are_noticed(tmp_path):
    path = tmp_path / "file"
    persistence.write_arrays(path, {"x": np.random.default_rng(0).random(4096)}, {})
    content = path.read_bytes()
    for size in (512, 4096, 8192):
        a, b = content[-size:], content[-2 * size : -size]
        path.write_bytes(content[: -2 * size] + a + b)
        with pytest.raises(FormatError, match="checksum"):
            persistence.read_arrays(path)


def test_a_header_of_deep_nesting_is_rejected(tmp_path, monkeypatch):
    path = tmp_path / "model.cw"
    monkeypatch.setattr(json, "dumps", lambda _: "[" * 100_000)
    persistence.write_arrays(path, {}, {})
    refuse(path)


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model.cw"
    persistence.write_arrays(path, {"x": np.arange(3)}, {"kind": "old"})

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        persistence.write_arrays(path, {"x": np.arange(4)}, {"kind": "new"})
    assert persistence.read_arrays(path)[1]["kind"] == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["model.cw"]


def test_a_killed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.cw"
    persistence.write_arrays(path, {"x": np.arange(3)}, {"kind": "old"})
    code = (
        "import os, signal, numpy as np\n"
        "from cliquewise.persistence import write_arrays\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"write_arrays({str(path)!r}, {{'x': np.arange(10**5)}}, {{'kind': 'new'}})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert persistence.read_arrays(path)[1]["kind"] == "old"


def test_a_model_file_can_be_read_by_whom_the_umask_allows(tmp_path):
    path = tmp_path / "model.cw"
    old = os.umask(0o022)
    try:
        persistence.write_arrays(path, {"x": np.arange(3)}, {})
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_saving_into_a_folder_that_is_not_there_is_an_error(tmp_path):
    tagger = cw.SequenceTagger(random_state=0).fit(STRINGS, Y)
    with pytest.raises(FormatError, match=r"missing.*cannot be written there"):
        tagger.save(tmp_path / "missing" / "model.cw")


def test_loading_can_go_on_with_training(tmp_path):
    tagger = cw.SequenceTagger(random_state=0).fit(STRINGS, Y)
    tagger.save(tmp_path / "model.cw")
    copy = cw.load(tmp_path / "model.cw").fit(STRINGS, Y)
    assert copy.predict(STRINGS) == tagger.predict(STRINGS)


# ---- provenance


FIT = """if True:
    import sys, numpy as np, cliquewise as cw
    X = [[["a", "x"], ["b"]], [["b"], ["a", "y"]], [["c"], ["b"]]]
    Y = [["A", "B"], ["B", "A"], ["C", "B"]]
    tagger = cw.SequenceTagger(random_state=0).fit(X, Y)
    tagger.save(sys.argv[1], metadata={"note": 1}, with_state=True)
"""


def test_equal_runs_write_equal_bytes(tmp_path):
    contents = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        line = [sys.executable, "-c", FIT, str(tmp_path / "m.cw")]
        subprocess.run(line, check=True, env=environment, timeout=300)
        contents.add((tmp_path / "m.cw").read_bytes())
    assert len(contents) == 1


def test_files_record_library_data_and_notes(tmp_path):
    first = cw.SequenceTagger(random_state=0).fit(STRINGS, Y)
    first.save(tmp_path / "a.cw", metadata={"author": "Ada", "tries": [1, 2]})
    loaded = cw.load(tmp_path / "a.cw")
    assert loaded.metadata_ == {"author": "Ada", "tries": [1, 2]}
    assert loaded.provenance_ == first.provenance_
    assert loaded.provenance_["cliquewise"] == cw.__version__
    assert loaded.stop_reason_ == "converged"
    loaded.save(tmp_path / "b.cw")
    assert cw.load(tmp_path / "b.cw").metadata_ == loaded.metadata_
    again = cw.SequenceTagger(C=3.0, random_state=0).fit(STRINGS, Y)
    other = cw.SequenceTagger(random_state=0).fit(STRINGS[:-1], Y[:-1])
    assert again.provenance_["data"] == first.provenance_["data"] != other.provenance_["data"]


@pytest.mark.parametrize("metadata", [["a"], {1: "a"}, {"a": {}}, {"a": object()}])
def test_metadata_that_files_cannot_hold_is_rejected(metadata, tmp_path):
    tagger = cw.SequenceTagger(random_state=0).fit(STRINGS, Y)
    with pytest.raises(DataError, match="metadata must be"):
        tagger.save(tmp_path / "m.cw", metadata=metadata)
    assert not (tmp_path / "m.cw").exists()


@pytest.mark.parametrize("name", ["provenance", "metadata"])
@pytest.mark.parametrize("value", [3, ["a"], {"a": {"b": 1}}])
def test_a_damaged_record_is_rejected(name, value, tmp_path):
    cw.SequenceTagger(random_state=0).fit(STRINGS, Y).save(tmp_path / "m.cw")
    arrays, header = persistence.read_arrays(tmp_path / "m.cw")
    persistence.write_arrays(tmp_path / "m.cw", arrays, header | {name: value})
    refuse(tmp_path / "m.cw")


def test_files_without_a_record_load(tmp_path):
    cw.SequenceTagger(random_state=0).fit(STRINGS, Y).save(tmp_path / "m.cw")
    arrays, header = persistence.read_arrays(tmp_path / "m.cw")
    for name in ("provenance", "metadata", "stop_reason"):
        del header[name]
    persistence.write_arrays(tmp_path / "m.cw", arrays, header)
    loaded = cw.load(tmp_path / "m.cw")
    assert (loaded.provenance_, loaded.metadata_, loaded.stop_reason_) == ({}, {}, "unknown")


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h["x"].update(data_offsets=[8, 32]),
        lambda h: h["x"].update(data_offsets=[0, 16]),
        lambda h: h["x"].update(data_offsets=[0, 10**18]),
        lambda h: h["x"].update(shape=[2]),
        lambda h: h["x"].update(shape=[-3, -1]),
        lambda h: h["x"].update(shape=[3.0]),
        lambda h: h["x"].update(dtype="O8"),
        lambda h: h.update(y=dict(h["x"])),
        lambda h: h.pop("x"),
        lambda h: h.update(__metadata__={"cliquewise": 3}),
        lambda h: h.update(__metadata__=[]),
    ],
)
def test_headers_that_do_not_match_the_bytes_are_rejected(change, tmp_path):
    path = tmp_path / "file"
    persistence.write_arrays(path, {"x": np.arange(3.0)}, {"kind": "x"})
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    with pytest.raises(FormatError):
        persistence.read_arrays(path)


def test_a_crfsuite_model_is_named_as_such(tmp_path):
    path = tmp_path / "m.crfsuite"
    path.write_bytes(b"lCRF" + bytes(100))
    with pytest.raises(FormatError, match="a CRFsuite model"):
        cw.load(path)
