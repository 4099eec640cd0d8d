"""Ways to a fitted tagger that are not one call of ``fit``: in parts, from files, made small."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import cliquewise as cw
from cliquewise.errors import UnsupportedError

from .plain import Rng, chance, pick

MODES = ("partial_fit", "path", "file", "known", "prune", "rounded")


def draw_mode(rng: Rng) -> dict[str, Any]:
    """What a run has beside its solver."""
    drawn: dict[str, Any] = {"mode": pick(rng, *MODES)}
    if drawn["mode"] in ("partial_fit", "file", "known") and chance(rng, 0.5):
        # Other parameters at first: what was proved under them may be false now.
        other = pick(rng, "C", "transitions", "solver", "feature_pairs", "l1_ratio", "loss")
        values = {"C": 0.5, "transitions": "all", "solver": "auto", "feature_pairs": "all",
                  "l1_ratio": 0.4, "loss": "pseudo_likelihood"}  # fmt: skip
        drawn["first"] = {other: values[other]}
    elif drawn["mode"] == "prune":
        drawn["how"] = pick(rng, {"threshold": 0.1}, {"threshold": 0.0}, {"keep": 0.5}, {"keep": 1})
        drawn["with_data"] = chance(rng, 0.5)
    elif drawn["mode"] == "rounded":
        drawn["dtype"] = pick(rng, "float32", "float16")
    return drawn


def train(model: Any, given: dict[str, Any], drawn: dict[str, Any], C: float) -> Any:
    """The tagger that a run makes of a tagger with its parameters."""
    mode = drawn.get("mode")
    if mode in ("partial_fit", "file", "known"):
        return _in_parts(model, given, drawn)
    if mode == "path":
        return cw.regularization_path(model, Cs=[C * 100, C], **given)[-1]
    model.fit(**given)
    if mode == "prune":
        data = {name: given[name] for name in given if name != "allowed"}
        is_whole = "allowed" not in given and drawn["with_data"]
        return model.prune(**drawn["how"], **(data if is_whole else {}))
    if mode == "rounded":
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / "model", dtype=drawn["dtype"])
            return cw.load(Path(folder) / "model")
    return model


def _in_parts(model: Any, given: dict[str, Any], drawn: dict[str, Any]) -> Any:
    """One example, then the others, with a file in between where the run says so."""
    known = [label for labels in given["y"] for label in labels]
    whole = all(label is not None and not isinstance(label, set) for label in known)
    if "allowed" in given or not whole or not isinstance(given["X"], list):
        raise UnsupportedError("partial_fit takes whole labels, and nothing but these")
    last = model.get_params(deep=False)
    model.set_params(**drawn.get("first", {}))
    given = dict(given, sample_weight=given["sample_weight"] or [1.0] * len(given["X"]))
    first, rest = ({n: part[at] for n, part in given.items()} for at in (slice(1), slice(1, None)))
    if model.loss == "pseudo_likelihood" and last["loss"] != model.loss and last["cost"]:
        raise UnsupportedError("a loss without costs is told of some")
    model.partial_fit(**first, classes=sorted(set(known)))
    if drawn["mode"] != "partial_fit":
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / "model", with_state=True)
            model = cw.load(Path(folder) / "model")
        model.set_params(n_jobs=last["n_jobs"], solver=last["solver"])
    if drawn.get("first"):
        model.set_params(**{name: last[name] for name in drawn["first"]})
    if drawn["mode"] == "known":
        return model.fit(**given, warm_start=True)
    if rest["X"]:
        return model.partial_fit(**rest)
    raise UnsupportedError("there is one example, and nothing to go on with")


def final(model: Any, fit: Any, places: Any) -> Any:
    """What a run found, with the weights and the certificate of the tagger that it ended with.

    ``places`` are those that the problem has, among all pairs of attributes and labels.
    """
    if len(model.coef_) == len(fit.weights) and np.array_equal(model.coef_, fit.weights):
        return replace(fit, certificate=model.certificate_)
    return replace(fit, certificate=model.certificate_, weights=spread(model)[places])


def spread(model: Any) -> np.ndarray:
    """The weights of a tagger in the order of those of all attributes and labels."""
    chain, k = model.model_, len(model.classes_)
    rows = np.zeros((chain.n_attributes, k))
    if len(chain.pair_start):
        owner = np.repeat(np.arange(chain.n_attributes), np.diff(chain.pair_start))
        rows[owner, chain.pair_label] = model.coef_[: chain.n_emissions]
    else:
        rows[:] = model.coef_[: chain.n_emissions].reshape(rows.shape)
    return np.concatenate([rows.ravel(), model.coef_[chain.n_emissions :]])
