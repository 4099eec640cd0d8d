"""DaskSequenceTagger: input, parameters, errors; all as on one machine."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import dask.bag
import numpy as np
import pytest
from dask import delayed
from dask_cases import TOL, agree, bags, sequences
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import cliquewise as cw
from cliquewise.distributed import DaskSequenceTagger
from cliquewise.errors import DataError, UnsupportedError


@pytest.mark.parametrize(
    "parameters",
    [
        {"feature_pairs": "seen", "transitions": "seen"},
        {"min_count": 3, "class_weight": "balanced", "C": 0.3},
        {"n_hash": 16, "intercept": False, "forbidden_transitions": []},
    ],
    ids=lambda p: "-".join(p),
)
def test_the_optimum_is_that_of_one_machine(client, parameters):
    X, y = sequences(0)
    tagger = DaskSequenceTagger(tol=TOL, client=client, **parameters).fit(*bags(X, y, 5))
    local = cw.SequenceTagger(tol=TOL, **parameters).fit(X, y)
    assert tagger.classes_ == local.classes_
    assert tagger.encoder_.names() == local.encoder_.names()
    agree(tagger, local)


def test_numbers_weights_and_empty_partitions(client):
    rng = np.random.default_rng(1)
    X = [rng.normal(size=(n, 3)) * (rng.random((n, 3)) < 0.5) for n in (3, 1, 4, 2, 2, 5)]
    y = [rng.integers(0, 2, len(x)).tolist() for x in X]
    weights = rng.random(6)
    cuts = [(0, 2), (2, 2), (2, 6)]
    parts = [[delayed(part[a:b]) for a, b in cuts] for part in (X, y, weights)]
    tagger = DaskSequenceTagger(tol=TOL, client=client).fit(*parts)
    agree(tagger, cw.SequenceTagger(tol=TOL).fit(X, y, weights))
    assert tagger.n_features_in_ == 3


def test_unknown_labels_mean_the_same_in_every_partition(client):
    X, y = sequences(2, 24)
    rng = np.random.default_rng(2)
    hide = {0: None, 1: {"A", "B"}}
    y = [[hide.get(int(rng.integers(6)), label) for label in labels] for labels in y]
    y[-8:] = [["A" if label == "C" else label for label in labels] for labels in y[-8:]]
    tagger = DaskSequenceTagger(client=client, C=0.1).fit(*bags(X, y, 3))
    local = cw.SequenceTagger(C=0.1).fit(X, y)
    assert tagger.certificate_.status == "none"
    assert tagger.certificate_.primal == pytest.approx(local.certificate_.primal, rel=1e-6)


def test_column_files_are_partitions(client, tmp_path):
    X, y = sequences(3, 30)
    rows = [[(*row, label) for row, label in zip(x, labels)] for x, labels in zip(X, y) if x]
    paths = [tmp_path / f"{k}.conll" for k in range(3)]
    for k, path in enumerate(paths):
        path.write_text("\n".join("\n".join(map(" ".join, s)) + "\n" for s in rows[k::3]))
    texts = [cw.data.read_conll(path) for path in paths]
    merged = tmp_path / "all.conll"
    merged.write_text("\n".join(path.read_text() for path in paths))
    template = cw.data.Template.parse("U0:%x[0,0]\nU1:%x[-1,1]\nB0:%x[0,2]\nB")
    tagger = DaskSequenceTagger(tol=TOL, client=client, template=template).fit(paths)
    text, labels = cw.data.read_conll(merged).split_labels()
    local = cw.SequenceTagger(tol=TOL, template=template).fit(text, labels)
    a, b = tagger.certificate_, local.certificate_
    assert a.dual <= b.primal and b.dual <= a.primal and a.gap <= TOL
    assert sorted(tagger.encoder_.names()) == sorted(local.encoder_.names())
    assert len(tagger.predict(paths).compute()) == sum(map(len, texts))
    with pytest.raises(DataError, match=r"nowhere\.conll: worker .* has no such file"):
        tagger.fit([tmp_path / "nowhere.conll"])


def test_predictions_files_pickles_and_clones_are_those_of_the_local_tagger(client, tmp_path):
    X, y = sequences(4)
    tagger = DaskSequenceTagger(client=client).fit(*bags(X, y, 2))
    local = tagger.to_local()
    assert type(local) is cw.SequenceTagger
    assert tagger.predict(bags(X, y, 3)[0]).compute() == tagger.predict(X) == local.predict(X)
    marginals = tagger.predict_marginals(bags(X, y, 3)[0]).compute()
    for one, other in zip(marginals, local.predict_marginals(X), strict=True):
        assert np.allclose(one, other)
    tagger.save(tmp_path / "model.cw")
    assert cw.load(tmp_path / "model.cw").predict(X) == local.predict(X)
    again = pickle.loads(pickle.dumps(tagger))
    assert again.predict(X) == local.predict(X) and again.client is None
    assert clone(DaskSequenceTagger(C=2.0)).C == 2.0


def test_two_fits_on_one_client_at_once(client):
    X, y = sequences(5)
    taggers = [DaskSequenceTagger(tol=TOL, client=client, C=C) for C in (0.1, 3.0)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda t: t.fit(*bags(X, y, 4)), taggers))
    for tagger in taggers:
        agree(tagger, cw.SequenceTagger(tol=TOL, C=tagger.C).fit(X, y))


def test_a_checkpoint_goes_on_and_other_data_are_rejected(client, tmp_path):
    X, y = sequences(6)
    path = tmp_path / "state"
    tagger = DaskSequenceTagger(
        tol=TOL, client=client, checkpoint=path, checkpoint_seconds=0, max_epochs=6
    )
    with pytest.warns(ConvergenceWarning, match="lbfgs stopped after"):
        tagger.fit(*bags(X, y, 3))
    more = DaskSequenceTagger(tol=TOL, client=client, checkpoint=path, resume=True)
    assert more.fit(*bags(X, y, 3)).trace_["epochs"][0] <= 6 < more.trace_["epochs"][-1]
    with pytest.raises(DataError, match="checkpoint"):
        more.fit(*bags(X[1:], y[1:], 3))


def test_what_cannot_be_done_says_so(client):
    X, y = sequences(7)
    bag, labels = bags(X, y, 2)
    fit = DaskSequenceTagger(client=client).fit
    with pytest.raises(UnsupportedError, match=r"client is a dask.distributed.Client"):
        DaskSequenceTagger(client="tcp://here").fit(bag, labels)
    with pytest.raises(UnsupportedError, match="on a cluster these work"):
        DaskSequenceTagger(client=client, solver="sdca").fit(bag, labels)
    with pytest.raises(UnsupportedError, match="use log or smooth_hinge"):
        DaskSequenceTagger(client=client, loss="hinge").fit(bag, labels)
    with pytest.raises(DataError, match="local estimator"):
        fit(X, y)
    with pytest.raises(DataError, match="y has 3 partitions and X has 2"):
        fit(bag, bags(X, y, 3)[1])
    with pytest.raises(DataError, match="y to be passed"):
        fit(bag)
    with pytest.raises(DataError, match=r"partition 1: example 0"):
        fit(bag, dask.bag.from_delayed([delayed(y[:20]), delayed([["A"] * 9, *y[21:]])]))
    with pytest.raises(DataError, match="no examples"):
        fit([delayed([])], [delayed([])])
    with pytest.raises(DataError, match="one kind"):
        fit([delayed([[["a"]]]), delayed([np.eye(2)])], [delayed([["A"]]), delayed([["A", "B"]])])


@pytest.mark.parametrize("ratio", [0.5, 1.0])
def test_an_elastic_net_is_certified_on_a_cluster(client, ratio):
    X, y = sequences(2, 20)
    given = {"l1_ratio": ratio, "tol": 1e-3}
    tagger = DaskSequenceTagger(client=client, **given).fit(*bags(X, y, 3))
    local = cw.SequenceTagger(solver="owlqn", max_epochs=1000, **given).fit(X, y)
    one, two = tagger.certificate_, local.certificate_
    assert max(one.gap, two.gap) <= 1e-3
    assert one.dual <= two.primal and two.dual <= one.primal
    assert tagger.n_nonzero_ < len(tagger.coef_)
    with pytest.raises(UnsupportedError, match="cost is not supported on a cluster"):
        DaskSequenceTagger("softmax_margin", client=client, cost={"A": 2.0}).fit(*bags(X, y, 3))
