"""ARFF with Mulan's XML, and LIBSVM multilabel files."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from cliquewise.data.formats.arff import read_arff, read_mulan_labels
from cliquewise.data.formats.libsvm import read_libsvm
from cliquewise.errors import FormatError

HEADER = """% a comment
@RELATION 'some rows'
@attribute 'first one' numeric
@attribute color {red, green, 'dark blue'}
@attribute A {0,1}
@attribute B {0,1}
@DATA
"""


def write(folder, text, name="a.arff"):
    path = folder / name
    path.write_text(text)
    return path


def test_dense_rows_quotes_and_nominal_attributes(tmp_path):
    data = read_arff(write(tmp_path, HEADER + "1.5,green,1,0\n-2,'dark blue',0,1\n\n"), labels=2)
    assert data.feature_names == ["first one", "color=red", "color=green", "color=dark blue"]
    assert data.label_names == ["A", "B"]
    np.testing.assert_array_equal(data.X.toarray(), [[1.5, 0, 1, 0], [-2, 0, 0, 1]])
    np.testing.assert_array_equal(data.Y, [[1, 0], [0, 1]])


def test_sparse_rows_leave_out_zeros_and_first_values(tmp_path):
    data = read_arff(write(tmp_path, HEADER + "{0 3, 3 1}\n{1 green}\n{}\n"), labels=["A", "B"])
    np.testing.assert_array_equal(data.X.toarray(), [[3, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]])
    np.testing.assert_array_equal(data.Y, [[0, 1], [0, 0], [0, 0]])


def test_labels_from_xml_and_from_a_compressed_file(tmp_path):
    xml = write(
        tmp_path, '<?xml version="1.0"?><labels xmlns="x"><label name="B"/></labels>', "a.xml"
    )
    path = tmp_path / "a.arff.gz"
    path.write_bytes(gzip.compress((HEADER + "1,red,1,1\n").encode()))
    data = read_arff(path, xml)
    assert data.label_names == ["B"] and data.Y.tolist() == [[1]]
    assert "A" in data.feature_names


@pytest.mark.parametrize(
    ("body", "message"),
    [("1,red,1\n", "3 values for 4"), ("x,red,1,0\n", "not a number"), ("1,pink,1,0\n", "pink"),
     ("?,red,0,0\n", "missing"), ("{9 1}\n", "attribute number"), ("{0 1\n", "ends with"),
     ("{0 1,0 2}\n", "attribute number")],
)  # fmt: skip
def test_errors_name_the_line(tmp_path, body, message):
    with pytest.raises(FormatError, match=message) as caught:
        read_arff(write(tmp_path, HEADER + body), labels=2)
    assert "line 8" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "labels"),
    [("@relation r\n", 1), ("@data\n1\n", 1), (HEADER, ["C"]), (HEADER, 9), (HEADER, 3),
     ("@attribute x string\n@data\n", 1), ("hello\n", 1)],
)  # fmt: skip
def test_bad_headers_and_label_names_are_errors(tmp_path, text, labels):
    with pytest.raises(FormatError):
        read_arff(write(tmp_path, text), labels=labels)


@pytest.mark.parametrize(
    "text", ["<labels>", "<labels/>", '<!DOCTYPE x><labels><label name="a"/></labels>', "no"]
)
def test_bad_xml_is_an_error(tmp_path, text):
    with pytest.raises(FormatError):
        read_mulan_labels(write(tmp_path, text, "a.xml"))


def test_libsvm_rows_may_have_many_labels_or_none(tmp_path):
    path = write(tmp_path, "2,0 1:0.5 3:1\n 2:4 # comment\n1\n", "a.svm")
    data = read_libsvm(path, n_features=5, n_labels=4)
    assert data.X.shape == (3, 5) and data.Y.shape == (3, 4)
    np.testing.assert_array_equal(np.argwhere(data.Y), [[0, 0], [0, 2], [2, 1]])
    np.testing.assert_array_equal(data.X.toarray()[0], [0.5, 0, 1, 0, 0])
    assert read_libsvm(path, zero_based=True).X.shape == (3, 4)


@pytest.mark.parametrize("text", ["a 1:2\n", "0 1:x\n", "0 1\n", "-1 1:2\n"])
def test_bad_libsvm_lines_are_errors_with_a_place(tmp_path, text):
    with pytest.raises(FormatError, match="line 1"):
        read_libsvm(write(tmp_path, text, "a.svm"))


def test_libsvm_sizes_that_do_not_fit_are_errors(tmp_path):
    path = write(tmp_path, "3 7:1\n", "a.svm")
    with pytest.raises(FormatError, match="features"):
        read_libsvm(path, n_features=2)
    with pytest.raises(FormatError, match="labels"):
        read_libsvm(path, n_labels=2)


def test_the_mulan_sets_have_the_sizes_of_their_papers(data_folder):
    sizes = {"yeast": (1500, 103, 14), "scene": (1211, 294, 6), "bibtex": (4880, 1836, 159)}
    for name, (n, d, labels) in sizes.items():
        folder = data_folder / "mulan" / name
        data = read_arff(folder / f"{name}-train.arff.xz", folder / f"{name}.xml")
        assert data.X.shape == (n, d) and data.Y.shape == (n, labels)
