"""Problems of every kind as plain data: how they are drawn, fitted, and listed output by output."""

from __future__ import annotations

from .chains import Chain, Multiclass
from .graphs import Graph, LabelSets
from .outputs import Candidates, Examples, Matching
from .plain import Kind

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (Chain(), Multiclass(), Graph(), LabelSets(), Candidates(), Matching(), Examples())
}
