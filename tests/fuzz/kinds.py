"""Problems of every kind as plain data: how they are drawn, fitted, and listed output by output."""

from __future__ import annotations

from .chains import Chain, Multiclass
from .drawing import Kind
from .graphs import Graph, LabelSets
from .outputs import Candidates, Examples, Matching

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (Chain(), Multiclass(), Graph(), LabelSets(), Candidates(), Matching(), Examples())
}
