"""Dynamic programs as hypergraphs: segmentations, trees, alignments and higher-order chains."""

from cliquewise.hypergraph.builders import (
    alignments,
    context_chain,
    projective_trees,
    segmentations,
    span_trees,
)
from cliquewise.hypergraph.hypergraph import Derivation, Hypergraph, HypergraphMarginals

__all__ = [
    "Derivation",
    "Hypergraph",
    "HypergraphMarginals",
    "alignments",
    "context_chain",
    "projective_trees",
    "segmentations",
    "span_trees",
]
