"""A pairwise graph as the kernels take it: one tuple of flat arrays."""

from collections import namedtuple

from cliquewise._kernels import kernel

#: Variable v has ``cards[v]`` states and the scores ``nodes[node_offsets[v]:node_offsets[v + 1]]``;
#: edge e joins ``i, j = edges[e]``, i < j, and scores their states x and y
#: ``tables[edge_offsets[e] + x * cards[j] + y]``. The edges of v are
#: ``links[starts[v]:starts[v + 1]]``, those to smaller variables before ``middles[v]``.
PairwiseGraph = namedtuple(
    "PairwiseGraph",
    ["cards", "node_offsets", "edges", "edge_offsets", "starts", "middles", "links", "nodes",
     "tables"],
)  # fmt: skip


@kernel(helper=True)
def most_states(cards):
    """The largest cardinality, at least 1."""
    largest = 1
    for v in range(len(cards)):
        largest = max(largest, cards[v])
    return largest
