"""DaskMultiLabelClassifier: sets of labels on a cluster, as on one machine."""

from __future__ import annotations

import dask.array
import dask.bag
import numpy as np
import pytest
from dask import delayed
from dask_cases import TOL, agree
from scipy.sparse import csr_matrix

import cliquewise as cw
from cliquewise.distributed import DaskMultiLabelClassifier
from cliquewise.errors import DataError, UnsupportedError


def rows(seed: int, n: int = 60):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5)) * (rng.random((n, 5)) < 0.4)
    noise = rng.normal(size=(n, 3))
    return X, (X @ rng.normal(size=(5, 3)) + noise + noise[:, :1] > 0).astype(int)


@pytest.mark.parametrize(
    "parameters",
    [
        {"label_graph": "none", "C": 1.0},
        {"label_graph": [(0, 1), (1, 2)], "pairs": "co-occurrence"},
    ],
    ids=["no pairs", "pairs"],
)
def test_the_optimum_is_that_of_one_machine(client, parameters):
    X, Y = rows(0)
    parameters = {"C": 0.5, "tol": TOL, "solver": "lbfgs", **parameters}
    arrays = [dask.array.from_array(part, chunks=(25, -1)) for part in (X, Y)]
    found = DaskMultiLabelClassifier(client=client, **parameters).fit(*arrays)
    local = cw.MultiLabelClassifier(penalize_intercept=True, **parameters).fit(X, Y)
    agree(found, local)
    assert np.array_equal(found.predict(arrays[0]).compute(), found.to_local().predict(X))
    assert np.allclose(found.predict_proba(arrays[0]).compute(), local.predict_proba(X), atol=1e-3)


def test_names_of_labels_are_merged_and_columns_that_a_partition_lacks_are_left_out(client):
    X, Y = rows(1)
    X[:20, 0] = 0.0
    names = [[name for name, on in zip("cab", row) if on] for row in Y]
    names[:20] = [[name for name in row if name != "a"] for row in names[:20]]
    cuts = [(0, 20), (20, 20), (20, 60)]
    parts = [[delayed(part[a:b]) for a, b in cuts] for part in (csr_matrix(X), names)]
    found = DaskMultiLabelClassifier(client=client, C=1.0, tol=TOL, label_graph="tree").fit(*parts)
    options = {"C": 1.0, "tol": TOL, "label_graph": "tree", "penalize_intercept": True}
    local = cw.MultiLabelClassifier(**options).fit(X, names)
    assert found.label_names_ == local.label_names_ == ["a", "b", "c"]
    assert found.label_graph_ == local.label_graph_
    agree(found, local)
    assert found.predict(parts[0]).compute() == found.to_local().predict(X)


def test_what_cannot_be_done_says_so(client):
    X, Y = (dask.array.from_array(part, chunks=(30, -1)) for part in rows(2))
    with pytest.raises(UnsupportedError, match="log or softmax_margin"):
        DaskMultiLabelClassifier(client=client, loss="hinge").fit(X, Y)
    with pytest.raises(DataError, match="partition 0: X has 30 rows and y has 20"):
        DaskMultiLabelClassifier(client=client).fit(X, Y[:50].rechunk(((20, 30), (3,))))
    with pytest.raises(DataError, match="columns: not the same"):
        wrong = [delayed(np.eye(2)), delayed(np.eye(3))]
        DaskMultiLabelClassifier(client=client).fit(wrong, [delayed(np.eye(k)) for k in (2, 3)])
