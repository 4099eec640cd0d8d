"""C="auto": the path, the one-standard-error rule, files, and what is not supported."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from tagging_cases import problem

import cliquewise as cw
from cliquewise.errors import DataError, FormatError, UnsupportedError
from cliquewise.estimators.tagger import c_selection
from cliquewise.persistence import read_arrays, write_arrays

X, Y = problem(80, seed=4)
SPANS = [[{"A": "B-X", "B": "O", "C": "B-Y"}[label] for label in y] for y in Y]


def make(**parameters):
    return cw.SequenceTagger(**{"C": "auto", "random_state": 0} | parameters)


@pytest.fixture(scope="module")
def tagger():
    return make().fit(X, Y)


def test_the_chosen_C_is_the_smallest_within_one_standard_error_of_the_best(tagger):
    path = tagger.C_path_
    best = max(point.score for point in path)
    within = [p.C for p in path if best - p.score <= p.difference_error]
    assert min(within) == tagger.C_
    assert [p.C for p in path] == list(c_selection.VALUES[: len(path)])
    assert all(p.gap <= tagger.tol for p in path)  # every point is certified
    assert tagger.C == "auto"


def test_final_weights_are_those_of_a_fit_with_the_chosen_C(tagger):
    plain = cw.SequenceTagger(C=tagger.C_, random_state=0, tol=1e-8, max_epochs=2000).fit(X, Y)
    tight = make(tol=1e-8, max_epochs=2000).fit(X, Y)
    assert tight.C_ == tagger.C_
    assert tight.certificate_.primal == pytest.approx(plain.certificate_.primal, rel=1e-7)
    np.testing.assert_allclose(tight.coef_, plain.coef_, atol=1e-3)


def test_scores_are_those_of_a_tagger_trained_on_the_other_sequences():
    tight = {"tol": 1e-9, "max_epochs": 3000}
    order = np.random.default_rng(0).permutation(len(X))
    held, kept = np.sort(order[:16]), np.sort(order[16:])
    path = make(**tight).fit(X, Y).C_path_
    for point in path:
        plain = cw.SequenceTagger(C=point.C, random_state=0, **tight)
        plain.fit([X[i] for i in kept], [Y[i] for i in kept])
        score = plain.score([X[i] for i in held], [Y[i] for i in held])
        assert point.score == pytest.approx(score, abs=1e-12)


def test_the_same_seed_gives_the_same_path(tagger):
    again = make().fit(X, Y)
    assert again.C_path_ == tagger.C_path_ and again.C_ == tagger.C_
    np.testing.assert_array_equal(again.coef_, tagger.coef_)


def test_labels_of_spans_are_compared_by_the_F1_of_spans():
    tagger = make().fit(X, SPANS)
    assert tagger._selection.measure == "span F1"
    counts = np.array([[2.0, 3.0], [0.0, 1.0], [4.0, 4.0]])
    assert c_selection._score(counts) == 6 / 8


def test_standard_errors_agree_with_the_bootstrap():
    rng = np.random.default_rng(0)
    total = rng.integers(3, 12, 400)
    counts = np.stack([rng.binomial(total, 0.8), total], axis=1).astype(float)
    samples = counts[rng.integers(0, 400, (4000, 400))].sum(axis=1)
    expected = (samples[:, 0] / samples[:, 1]).std()
    error = c_selection._standard_error(c_selection._residuals(counts))
    assert error == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    "parameters",
    [{"loss": "hinge"}, {"loss": "pseudo_likelihood"}, {"feature_pairs": "seen"},
     {"solver": "lbfgs"}, {"transitions": "seen", "l1_ratio": 0.5}],
    ids=str,
)  # fmt: skip
def test_C_is_chosen_for_other_losses_models_and_solvers(parameters):
    tagger = make(tol=1e-2, **parameters).fit(X[:30], Y[:30])
    plain = cw.SequenceTagger(C=tagger.C_, random_state=0, tol=1e-2, **parameters)
    plain.fit(X[:30], Y[:30])
    one, other = tagger.certificate_, plain.certificate_
    assert one.gap <= 1e-2
    assert one.dual <= other.primal + 1e-9 and other.dual <= one.primal + 1e-9


def test_partial_labels_are_scored_on_known_tokens():
    y = [[None if t % 3 == 0 else label for t, label in enumerate(labels)] for labels in Y]
    tagger = make(max_epochs=20).fit(X[:30], y[:30])
    assert all(np.isnan(p.gap) for p in tagger.C_path_)  # not convex: no certificate


def test_a_file_keeps_the_choice(tagger, tmp_path):
    partial = make(max_epochs=20).fit(X[:20], [[None, *y[1:]] for y in Y[:20]])
    for number, fitted in enumerate((tagger, partial)):
        path = tmp_path / f"{number}.cw"
        fitted.save(path)
        copy = cw.load(path)
        assert copy.C == "auto" and copy.C_ == fitted.C_
        np.testing.assert_equal(copy.C_path_, fitted.C_path_)


@pytest.mark.parametrize(
    "damage",
    [None, {}, {"C": 0.5}, {"C": "auto"}, {"path": []}, {"path": [[1.0]]}, {"measure": "luck"},
     {"path": [[1.0, "x", 0.0, 0.0, 0.0, 1, 1]]}, {"path": [[1.0, 0.5, 0.0, 0.0, 0.0, -1, 1]]}],
    ids=str,
)  # fmt: skip
def test_a_damaged_choice_in_a_file_is_an_error(damage, tagger, tmp_path):
    tagger.save(tmp_path / "m.cw")
    arrays, header = read_arrays(tmp_path / "m.cw")
    if damage:
        header["selection"] |= damage
    else:
        header["selection"] = damage
    arrays = {name: np.array(array) for name, array in arrays.items()}
    write_arrays(tmp_path / "bad.cw", arrays, header)
    with pytest.raises(FormatError, match="damaged"):
        cw.load(tmp_path / "bad.cw")


def test_training_continues_with_the_chosen_C(tmp_path):
    tagger = make().fit(X[:60], Y[:60])
    chosen = tagger.C_
    tagger.save(tmp_path / "m.cw", with_state=True)
    for copy in (tagger, cw.load(tmp_path / "m.cw")):
        copy.partial_fit(X[60:], Y[60:])
        assert chosen == copy.C_
        plain = cw.SequenceTagger(C=chosen, random_state=0).fit(X, Y).certificate_
        assert copy.certificate_.dual <= plain.primal + 1e-9
        assert plain.dual <= copy.certificate_.primal + 1e-9


def test_a_number_set_after_the_choice_is_used():
    tagger = make().fit(X[:40], Y[:40])
    tagger.set_params(C=0.5).partial_fit(X[40:50], Y[40:50])
    plain = cw.SequenceTagger(C=0.5, random_state=0).fit(X[:50], Y[:50])
    assert tagger.C_ == 0.5
    assert tagger.certificate_.primal == pytest.approx(plain.certificate_.primal, rel=2e-3)
    tagger.fit(X[:40], Y[:40])
    assert not hasattr(tagger, "C_path_")


def test_auto_set_after_training_needs_a_fit():
    tagger = cw.SequenceTagger(C=1.0, random_state=0).fit(X[:20], Y[:20])
    assert tagger.C_ == 1.0
    with pytest.raises(DataError, match="call fit"):
        tagger.set_params(C="auto").partial_fit(X[20:30], Y[20:30])
    assert tagger.C_ == 1.0


def test_an_interrupt_during_the_choice_leaves_the_tagger_unchanged(monkeypatch):
    tagger = cw.SequenceTagger(random_state=0).fit(X[:20], Y[:20])
    before = tagger.coef_.copy()

    def interrupted(self, *arguments, **options):
        self.stop_reason_ = "interrupted"

    tagger.set_params(C="auto")
    monkeypatch.setattr(cw.SequenceTagger, "_fit_examples", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tagger.fit(X, Y)
    np.testing.assert_array_equal(tagger.coef_, before)


def test_what_is_not_supported_is_an_error():
    with pytest.raises(DataError, match="set C to a number"):
        make().fit(X[:9], Y[:9])
    with pytest.raises(UnsupportedError, match='C="auto" is not supported for Shards'):
        make().fit(cw.data.Shards(lambda: iter(zip(X, Y)), "unused"))
    with pytest.raises((AttributeError, NotFittedError)):
        _ = make().C_


def test_the_report_lists_the_path(tagger, tmp_path):
    tagger.report(X, Y, tmp_path / "r.html")
    assert f"Choice of C = {tagger.C_:g}" in (tmp_path / "r.html").read_text()
