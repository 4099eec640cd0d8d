"""Sequences that need not fit into memory: reading them in blocks, encoding them into a folder."""

from __future__ import annotations

import errno
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cliquewise.data import Columns, Shards, write_crfsuite
from cliquewise.data import shard_writer as writer
from cliquewise.data import shards as reading
from cliquewise.data.conversion import SequenceEncoder
from cliquewise.data.shard_cache import open_cache
from cliquewise.errors import CliquewiseError, DataError, TooLargeError

BIG = 1e9
names = st.text('ab\n\\"é\x1f', min_size=1, max_size=3)
tokens = st.lists(names, max_size=3)
sequences = st.lists(tokens, max_size=4)


def draw_labels(X, rng):
    return [[str(rng.choice(["B", "I", "O"])) for _ in x] for x in X]


def opened(source, folder, template=None, n_hash=None, min_count=1, most=BIG, **options):
    return open_cache(Shards(source, folder, **options), template, n_hash, min_count, most)


def same(cache, X, y, encoder):
    """The cache holds what the encoder would have made of all sequences at once."""
    data = cache.part(0, cache.n_examples)
    expected = encoder.fit_transform(X)
    assert cache.encoder.n_features == encoder.n_features
    assert np.array_equal(data.offsets, expected.offsets)
    ours, theirs = cache.encoder.transform(X).features(), data.features()
    assert (ours != theirs).nnz == 0
    assert ours.sum() == expected.features().sum()
    flat = [label for labels in y for label in labels]
    assert [cache.labels.classes[k] for k in data.labels] == flat
    return data


@settings(max_examples=60, deadline=None)
@given(
    X=st.lists(sequences, min_size=1, max_size=12),
    block=st.integers(1, 6),
    n_hash=st.sampled_from([None, 7]),
    min_count=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_the_folder_holds_what_encoding_in_memory_gives(
    tmp_path_factory, X, block, n_hash, min_count, seed
):
    if not any(X):
        return
    y = draw_labels(X, np.random.default_rng(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK", block)
        folder = tmp_path_factory.mktemp("cache")
        cache = opened(lambda: zip(X, y), folder, n_hash=n_hash, min_count=min_count)
        data = same(cache, X, y, SequenceEncoder(None, n_hash, min_count))
        parts = list(cache)
    assert sum(map(len, parts)) == len(X)
    half = len(X) // 2
    second = cache.part(half, len(X))
    assert np.array_equal(second.labels, data.labels[data.offsets[half] :])
    assert (second.features() != data.features()[data.offsets[half] :]).nnz == 0


def test_column_files_compressed_files_and_patterns_are_read_in_blocks(tmp_path, monkeypatch):
    import gzip

    monkeypatch.setattr(reading, "BLOCK", 2)
    one, two = "the D\ncat N\n\nit P\n", "a D\n\ndog N\nruns V\n"
    (tmp_path / "1.conll").write_text(one)
    with gzip.open(tmp_path / "2.conll.gz", "wt") as file:
        file.write(two)
    cache = opened(str(tmp_path / "*.conll*"), tmp_path / "cache")
    words = [["the", "cat"], ["it"], ["a"], ["dog", "runs"]]
    text = Columns.from_rows([[[w] for w in s] for s in words])
    same(cache, text, [["D", "N"], ["P"], ["D"], ["N", "V"]], SequenceEncoder())
    assert opened(str(tmp_path / "*.conll*"), tmp_path / "cache").digest == cache.digest


def test_values_and_weights_that_only_some_blocks_have_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "BLOCK", 1)
    X = [[["a"]], [[("a", 2.0), ("b", 3.0)]], [["b"]]]
    y = [["X"], ["Y"], ["X"]]
    write_crfsuite(tmp_path / "a.crfsuite", X, y, weights=[1.0, 2.5, 1.0])
    data = opened(tmp_path / "a.crfsuite", tmp_path / "cache").part(0, 3)
    assert data.values.tolist() == [1.0, 2.0, 3.0, 1.0]
    assert data.weights.tolist() == [1.0, 2.5, 1.0]
    weighted = opened(lambda: [(X[0], y[0]), (X[1], y[1], 2.0)], tmp_path / "other")
    assert weighted.part(0, 2).weights.tolist() == [1.0, 2.0]


def test_lists_in_parquet_and_arrow_files_are_columns_or_attributes(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow reads Parquet and Arrow files")
    feather = pytest.importorskip("pyarrow.feather", reason="pyarrow reads Arrow files")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow reads Parquet files")
    words, tags = [["the", "cat"], ["it"]], [["D", "N"], ["P"]]
    table = arrow.table({"id": [1, 2], "tag": tags, "word": words})
    parquet.write_table(table, tmp_path / "a.parquet")
    feather.write_feather(table, tmp_path / "a.arrow")
    text = Columns.from_rows([[[w] for w in s] for s in words])
    for name in ("a.parquet", "a.arrow"):
        cache = opened(tmp_path / name, tmp_path / f"cache-{name}", label="tag")
        same(cache, text, tags, SequenceEncoder())
    nested = [[["w=the"], ["w=cat", "last"]], [["w=it"]]]
    parquet.write_table(arrow.table({"x": nested, "y": tags}), tmp_path / "b.parquet")
    same(opened(tmp_path / "b.parquet", tmp_path / "cache-b"), nested, tags, SequenceEncoder())
    with pytest.raises(CliquewiseError, match="no column 'label'"):
        opened(tmp_path / "a.parquet", tmp_path / "cache-c", label="label")


class Stopped(Exception):
    """An interruption."""


@pytest.mark.parametrize("after", range(1, 6))
def test_an_interrupted_encoding_goes_on_where_it_stopped(tmp_path, monkeypatch, after):
    monkeypatch.setattr(reading, "BLOCK", 1)
    X = [[[f"w={i % 3}", f"i={i}"]] for i in range(6)]
    y = [["ABC"[i % 3]] for i in range(6)]
    given = []

    def source(stop):
        for i, (x, labels) in enumerate(zip(X, y)):
            if i == stop:
                raise Stopped
            given.append(i)
            yield x, labels

    with pytest.raises(Stopped):
        opened(lambda: source(after), tmp_path)
    for name in ("indices", "labels", "names"):  # what a kill in the middle of a block leaves
        with open(tmp_path / name, "ab") as file:
            file.write(b'"half of a name')
    given.clear()
    cache = opened(lambda: source(99), tmp_path)
    same(cache, X, y, SequenceEncoder())


def test_a_full_disk_is_explained_and_encoding_goes_on_later(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    source = lambda: [([["a"]], ["X"])]  # noqa: E731
    with (
        monkeypatch.context() as patch,
        pytest.raises(DataError, match=r"disk is full.*call again"),
    ):
        patch.setattr(writer.Writer, "_add", full)
        opened(source, tmp_path)
    assert opened(source, tmp_path).n_tokens == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: {"source": lambda: [([["b"]], ["Z"])]}, "other sequences"),
        (lambda f: {"n_hash": 9}, "another template, n_hash or min_count"),
        (lambda f: {"encoding": "latin-1"}, "other files"),
        (lambda f: ((f / "indices").write_bytes(b"") and {}) or {}, "shorter than it says"),
        (lambda f: (f / "manifest.json").write_text("{") and {}, "damaged"),
    ],
)
def test_a_cache_of_other_data_is_rejected(tmp_path, change, message):
    given = {"source": lambda: [([["a"]], ["X"])]}
    opened(folder=tmp_path, **given)
    given |= change(tmp_path) or {}
    with pytest.raises(CliquewiseError, match=message):
        opened(folder=tmp_path, **given)


def test_files_that_change_and_folders_of_others_are_rejected(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("the D\n")
    opened(path, tmp_path / "cache")
    path.write_text("the D\ncat N\n")
    with pytest.raises(DataError, match=r"of other files \(or these have changed since\)"):
        opened(path, tmp_path / "cache")
    with pytest.raises(DataError, match=r"holds other files \(a.conll\)"):
        opened(path, tmp_path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere/*.conll", "there is no file"),
        ([], "at least one file"),
        (lambda: 3, "not an iterable"),
        (lambda: [["a"]], "gives .sequence, labels."),
        (lambda: [([["a"]], [None])], "every label to be known"),
        (lambda: [([["a"]], ["X", "Y"])], "1 tokens but 2 labels"),
        (list, "no labeled tokens"),
        (lambda: [([["a"]], ["X"]), (np.ones((1, 2)), ["X"])], "of one kind|use one kind"),
    ],
)
def test_wrong_sources_get_one_clear_line(tmp_path, source, message):
    with pytest.raises(CliquewiseError, match=message):
        opened(source, tmp_path / "cache")


def test_a_dictionary_beyond_memory_is_refused_with_the_remedy(tmp_path):
    source = lambda: [([[f"w={i}"]], ["X"]) for i in range(100)]  # noqa: E731
    with pytest.raises(TooLargeError, match="n_hash"):
        opened(source, tmp_path, most=10 * writer.NAME_BYTES)


def test_a_manifest_reads_nothing_outside_its_folder(tmp_path):
    opened(lambda: [([["a"]], ["X"])], tmp_path / "cache")
    path = tmp_path / "cache" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"] = {"labels": "../secret"}
    (tmp_path / "secret").write_bytes(b"\0" * 4)
    path.write_text(json.dumps(manifest))
    with pytest.raises(CliquewiseError, match="damaged"):
        opened(lambda: [([["a"]], ["X"])], tmp_path / "cache")
