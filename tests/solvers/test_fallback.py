"""``auto`` goes on with another solver where dual ascent has become slow."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import cliquewise as cw


def hard_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3)) * np.array([1.0, 30.0, 300.0])
    return X, rng.integers(0, 3, 40)


def test_auto_reaches_the_optimum_that_sdca_alone_does_not():
    X, y = hard_rows()
    alone = cw.MulticlassClassifier(C=10.0, solver="sdca", tol=1e-6, max_epochs=200, random_state=0)
    with pytest.warns(UserWarning, match="gap"):
        alone.fit(X, y)
    auto = cw.MulticlassClassifier(C=10.0, tol=1e-6, max_epochs=2000, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        auto.fit(X, y)
    assert alone.solver_ == "sdca"
    assert auto.solver_ == "lbfgs"
    assert auto.certificate_.gap <= 1e-6
    assert auto.certificate_.primal <= alone.certificate_.primal + 1e-9


def test_the_dual_bound_never_falls_and_never_passes_the_primal():
    X, y = hard_rows()
    auto = cw.MulticlassClassifier(C=10.0, tol=1e-6, max_epochs=2000, random_state=0).fit(X, y)
    assert np.all(np.diff(auto.trace_.dual) >= 0)
    assert np.all(auto.trace_.primal >= auto.trace_.dual.max() - 1e-10)


def test_a_quick_run_stays_with_sdca():
    X, y = [[["a"], ["b"]], [["b"]]], [["A", "B"], ["B"]]
    assert cw.SequenceTagger(tol=1e-6).fit(X, y).solver_ == "sdca"


class Noisy:
    """A run whose certificates jump while the solver's own estimates fall steadily."""

    def __init__(self, fall: float):
        from cliquewise.solvers.run import Run
        from cliquewise.trace import COLUMNS, Trace

        self.tol, self.epochs, self.trace = 1e-3, 40.0, Trace(COLUMNS)
        rng = np.random.default_rng(0)
        noise = np.exp(0.3 * rng.normal(size=41))
        self.estimates = [(float(e), float(np.exp(-fall * e) * noise[e])) for e in range(1, 41)]
        for epochs, gap in ((1, 0.9), (20, 0.02), (30, 0.025), (40, 0.02)):
            row = dict.fromkeys(COLUMNS, 0.0) | {"epochs": float(epochs), "gap": gap}
            self.trace.append(**row)
        self.is_slow = Run.is_slow.__get__(self)


def test_noisy_certificates_do_not_send_a_run_away_that_gets_on():
    assert not Noisy(fall=0.1).is_slow()
    assert Noisy(fall=0.001).is_slow()
