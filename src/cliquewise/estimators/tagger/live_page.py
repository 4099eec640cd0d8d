"""Export a tagger as plain data for the "try it" section of a report, which tags in JavaScript."""

from __future__ import annotations

import base64
import sys
import unicodedata
from functools import cache
from typing import Any

import numpy as np

from cliquewise.data.builtin_templates import CHANGES
from cliquewise.data.template_encoder import TemplateEncoder, marks_outside
from cliquewise.errors import UnsupportedError
from cliquewise.estimators.tagger.chain_tagger import ChainTagger
from cliquewise.ragged import Floats, Ints
from cliquewise.report.blocks import Block
from cliquewise.report.page import embedded


def live_block(chain: ChainTagger) -> Block:
    """Return the data of the section; raise an error if JavaScript could not reproduce the tags."""
    encoder, model, w = _page_encoder(chain), chain.model_, chain.coef_
    attribute, label, weight = _nonzero(model, w)
    n = model.n_attributes - model.intercept - 2 * model.boundaries
    inner = attribute < n
    used, counts = np.unique(attribute[inner], return_counts=True)
    names = chain.encoder_.names()
    constant = np.zeros((model.n_attributes - n, model.n_labels))
    constant[attribute[~inner] - n, label[~inner]] = weight[~inner]
    rows = iter(constant.tolist())
    nothing = [0.0] * model.n_labels
    intercept = next(rows) if model.intercept else nothing
    begin, end = (next(rows), next(rows)) if model.boundaries else (nothing, nothing)
    allowed = model.edge_allowed if len(model.edge_allowed) else np.ones_like(model.edge_free)
    template = encoder.template
    block = {
        "kind": "live",
        "labels": [str(c) for c in chain.classes_],
        "columns": chain.encoder_.n_columns,
        "rules": [
            [list(r.parts), [[m.row, m.column, m.change, m.absolute] for m in r.macros], r.only]
            for r in template.token_rules
        ],
        "marks": marks_outside(template),
        "digits": _other_digits(),
        "names": [names[a] for a in used.tolist()],
        "counts": _packed(counts.astype("<u4")),
        "cells": _packed(label[inner].astype("<u4")),
        "weights": _packed(weight[inner].astype("<f8")),
        "intercept": intercept,
        "begin": _masked(begin, model.begin_allowed),
        "end": _masked(end, model.end_allowed),
        "transitions": [_masked(*row) for row in zip(model.transitions(w).tolist(), allowed)],
        "probabilities": chain.has_probabilities,
        "n_weights": int(inner.sum()),
    }
    return block | {"bytes": len(embedded(block))}


def _page_encoder(chain: ChainTagger) -> TemplateEncoder:
    """Return the encoder; raise an error if the page cannot compute the model's attributes."""
    encoder = chain.encoder_.inner
    if not isinstance(encoder, TemplateEncoder):
        raise UnsupportedError(
            '"try it" in a page: this model was trained without a template; leave live out'
        )
    why = None
    if encoder.vocabulary is None:
        why = "hashes its attributes"
    elif chain.model_.n_edge_attributes:
        why = "has attributes of pairs of tokens"
    else:
        strange = {m.change for m in encoder.template.macros()} - {"", *CHANGES}
        if strange:
            why = f"has a rule with an expression ({min(strange)})"
    if why is not None:
        raise UnsupportedError(f'"try it" in a page: this model {why}; leave live out')
    return encoder


def _nonzero(model: Any, w: Floats) -> tuple[Ints, Ints, Floats]:
    """Return attribute, label and weight of all nonzero emission weights, ordered by attribute."""
    flat = w[: model.n_emissions]
    at = np.flatnonzero(flat)
    if not len(model.pair_start):
        return at // model.n_labels, at % model.n_labels, flat[at]
    attributes = np.searchsorted(model.pair_start, at, side="right") - 1
    return attributes, model.pair_label[at].astype(np.int64), flat[at]


def _masked(values: list[float], allowed: Any) -> list[float | None]:
    return [v if ok else None for v, ok in zip(values, allowed.tolist(), strict=True)]


def _packed(array: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


@cache
def _other_digits() -> str:
    """Return the characters that ``isdigit`` accepts but are not decimals, such as superscripts."""
    every = map(chr, range(sys.maxunicode + 1))
    return "".join(c for c in every if c.isdigit() and unicodedata.category(c) != "Nd")
