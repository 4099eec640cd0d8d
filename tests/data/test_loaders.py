"""Loaders: of a folder of public data sets, and of data that need no download."""

from __future__ import annotations

import gzip
from itertools import pairwise

import numpy as np
import pytest
from scipy.io import savemat

from cliquewise.data import embedded, loaders
from cliquewise.errors import CliquewiseError, DataError


def test_numbers_are_split_by_image_and_made_by_the_seed():
    train, test = embedded.handwritten_numbers(30, 20, noise=0.0)
    assert len(train) == 30 and len(test) == 20
    seen = {image.tobytes() for x in train.X for image in x}
    assert not any(image.tobytes() in seen for x in test.X for image in x)
    for x, y in zip(train.X, train.y, strict=True):
        assert x.shape == (len(y), 64) and 5 <= len(y) <= 12
    again, _ = embedded.handwritten_numbers(30, 20, noise=0.0)
    assert again.y == train.y and np.array_equal(again.X[3], train.X[3])
    assert embedded.handwritten_numbers(30, 20, random_state=1)[0].y != train.y


def test_most_numbers_count_upwards():
    train, _ = embedded.handwritten_numbers(200, 1)
    steps = [(b - a) % 10 for y in train.y for a, b in pairwise(y)]
    assert 0.65 < np.mean(np.array(steps) == 1) < 0.76


def test_numbers_that_cannot_be_are_rejected():
    with pytest.raises(DataError):
        embedded.handwritten_numbers(0)
    with pytest.raises(DataError):
        embedded.handwritten_numbers(noise=float("nan"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "conll2000").mkdir()
    (tmp_path / "conll2000" / "train.txt.gz").write_bytes(gzip.compress(b"a DT B-NP\nb NN I-NP\n"))
    (tmp_path / "conll2000" / "test.txt").write_text("c DT B-NP\n\nd NN O\n")
    (tmp_path / "conll2003").mkdir()
    for part in ("train", "testa", "testb"):
        text = f"-DOCSTART- -X- O O\n\n{part} NN I-NP O\n"
        (tmp_path / "conll2003" / f"eng.{part}").write_text(text)
    (tmp_path / "ocr").mkdir()
    y = np.array([[3, 1, 0, 2, 0, 26, 0]]).T
    fold = np.array([[1, 1, -1, 0, -1, 2, -1]]).T
    savemat(tmp_path / "ocr" / "ocr.mat", {"X": np.eye(7, 128), "y": y, "fold": fold})
    return tmp_path


def test_files_of_a_folder_become_training_and_test_parts(folder):
    chunks = loaders.load_conll2000(folder)
    assert chunks.y_train == [["B-NP", "I-NP"]] and chunks.y_test == [["B-NP"], ["O"]]
    assert chunks.X_train.columns == [["a", "b"], ["DT", "NN"]] and chunks.template == "chunking"
    names = loaders.load_conll2003(folder, test="testa")
    assert names.X_test.columns[0] == ["testa"] and names.X_test.n_columns == 3
    letters = loaders.load_ocr(folder)
    assert letters.y_train == [["c", "a"], ["z"]] and letters.y_test == [["b"]]
    assert letters.X_train[0].shape == (2, 128)


def test_the_environment_may_name_the_folder(folder, monkeypatch):
    monkeypatch.setenv(loaders.VARIABLE, str(folder))
    assert len(loaders.load_conll2000().y_train) == 1
    monkeypatch.delenv(loaders.VARIABLE)
    with pytest.raises(DataError, match="CLIQUEWISE_DATA"):
        loaders.load_conll2000()


@pytest.mark.parametrize("load", [loaders.load_conll2000, loaders.load_conll2003, loaders.load_ocr])
def test_what_is_missing_is_named(load, tmp_path):
    with pytest.raises(DataError, match="lacks"):
        load(tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        load(tmp_path / "nowhere")


def test_other_folds_and_foreign_files_are_rejected(folder):
    with pytest.raises(DataError, match="folds are"):
        loaders.load_ocr(folder, test_fold=7)
    with pytest.raises(DataError, match="testc"):
        loaders.load_conll2003(folder, test="testc")
    (folder / "ocr" / "ocr.mat").write_bytes(b"no matlab file" * 20)
    with pytest.raises(CliquewiseError):
        loaders.load_ocr(folder)


def test_the_real_data_have_the_counts_of_their_papers(data_folder):
    split = loaders.load_ocr(data_folder)
    assert (len(split.y_train), len(split.y_test)) == (6251, 626)
    assert sum(map(len, split.y_train + split.y_test)) == 52152
    chunks = loaders.load_conll2000(data_folder)
    assert (len(chunks.y_train), chunks.X_train.n_tokens) == (8936, 211727)
