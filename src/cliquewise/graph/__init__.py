"""Graphs: variables and factors, evidence, builders, spanning trees."""

from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure

__all__ = ["FactorGraph", "Structure"]
