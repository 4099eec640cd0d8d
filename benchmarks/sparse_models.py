"""Models full of zeros: pedigrees, circuits and plans, exactly by rows and by dense tables.

    python -m benchmarks.sparse_models [--rows MOST] [part of a name ...]

For each model: variables, the share of zeros, the entries of the best dense tree (after states
that are impossible were taken away), the entries that fixing variables takes, the rows that
``sparse`` expected and joined, and its seconds for all marginals. Where dense tables are not too
large either, their seconds, and the difference of the marginals. A line of JSON at the end.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.common import print_json, print_table, seconds
from cliquewise.errors import TooLargeError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles import get
from cliquewise.oracles.base import Limits
from cliquewise.oracles.cutset import Cutset
from cliquewise.oracles.junction_tree import JunctionTree
from cliquewise.oracles.sparse import SparseOrders

#: Dense tables of more entries are not filled here.
DENSE = 3e8


def pedigree(
    people: int, loci: int, *, founders: int = 8, alleles: int = 3, seen: float = 0.4, seed: int = 0
) -> FactorGraph:
    """Genes of a family at several linked loci, given the genotypes of some of its members.

    Per person and locus the allele from either parent; per child also which of a parent's two
    alleles it got (selectors), which neighboring loci mostly share.
    """
    rng = np.random.default_rng(seed)
    cards: list[int] = []
    factors: list[tuple[tuple[int, ...], Any]] = []

    def variable(states: int) -> int:
        cards.append(states)
        return len(cards) - 1

    with np.errstate(divide="ignore"):
        inherited = np.log(np.stack([  # [selector, paternal, maternal, child]
            np.broadcast_to(np.eye(alleles)[:, None, :], (alleles,) * 3),
            np.broadcast_to(np.eye(alleles)[None, :, :], (alleles,) * 3),
        ]))  # fmt: skip
    parents = [rng.choice(max(founders, i), 2, replace=False) for i in range(founders, people)]
    before: list[dict[tuple[int, int], int]] = []
    for _ in range(loci):
        frequencies = rng.dirichlet(np.full(alleles, 2.0))
        theta = rng.uniform(0.02, 0.2)
        linked = np.log([[1 - theta, theta], [theta, 1 - theta]])
        genes = [(variable(alleles), variable(alleles)) for _ in range(people)]
        truth = np.zeros((people, 2), dtype=int)
        selectors: dict[tuple[int, int], int] = {}
        for i in range(people):
            for side in range(2):
                if i < founders:
                    truth[i, side] = rng.choice(alleles, p=frequencies)
                    factors.append(((genes[i][side],), np.log(frequencies)))
                    continue
                parent, chosen = parents[i - founders][side], rng.integers(2)
                truth[i, side] = truth[parent, chosen]
                s = selectors[i, side] = variable(2)
                factors.append(((s, *genes[parent], genes[i][side]), inherited))
                if before:
                    factors.append(((before[-1][i, side], s), linked))
            if rng.random() < seen:  # the genotype, not which allele is whose
                a, b = truth[i]
                table = np.full((alleles, alleles), -np.inf)
                table[a, b] = table[b, a] = 0.0
                factors.append(((genes[i][0], genes[i][1]), table))
        before.append(selectors)
    return FactorGraph(cards, factors)


def circuit(
    inputs: int, gates: int, *, outputs: int = 0, reach: int = 10**9, seed: int = 0
) -> FactorGraph:
    """Gates of two or three wires each; inputs are biased coins, some wires are observed.

    ``reach``: how many wires back a gate may read.
    """
    rng = np.random.default_rng(seed)
    factors: list[tuple[tuple[int, ...], Any]] = [
        ((v,), rng.standard_normal(2)) for v in range(inputs)
    ]
    for v in range(inputs, inputs + gates):
        low = max(0, v - reach)
        wires = low + rng.choice(v - low, int(rng.integers(2, 4)), replace=False)
        says = rng.integers(0, 2, (2,) * len(wires))
        table = np.where(says[..., None] == np.arange(2), 0.0, -np.inf)
        factors.append(((*wires.tolist(), v), table))
    factors += [((inputs + gates - 1 - k,), [0.0, 1.0]) for k in range(outputs)]
    return FactorGraph([2] * (inputs + gates), factors)


def plan(facts: int, steps: int, *, actions: int = 4, seed: int = 0) -> FactorGraph:
    """Facts that hold or not, and one action at a time that changes a few of them for certain."""
    rng = np.random.default_rng(seed)
    cards, factors = [], []
    touched = [rng.choice(facts, 3, replace=False) for _ in range(actions)]
    effects = [rng.integers(0, 2, 3) for _ in range(actions)]
    state = [len(cards) + i for i in range(facts)]
    cards += [2] * facts
    factors += [((v,), rng.standard_normal(2)) for v in state]
    for _ in range(steps):
        action = len(cards)
        cards.append(actions)
        factors.append(((action,), rng.standard_normal(actions)))
        after = [action + 1 + i for i in range(facts)]
        cards += [2] * facts
        for i in range(facts):
            table = np.full((actions, 2, 2), -np.inf)
            for a in range(actions):
                at = np.flatnonzero(touched[a] == i)
                for x in range(2):
                    table[a, x, int(effects[a][at[0]]) if len(at) else x] = 0.0
            factors.append(((action, state[i], after[i]), table))
        state = after
    factors += [((v,), rng.standard_normal(2)) for v in state]
    return FactorGraph(cards, factors)


def models() -> Iterator[tuple[str, FactorGraph]]:
    """From easy to hard."""
    for people, loci, seed in [(20, 6, 0), (24, 8, 1), (30, 8, 2), (30, 10, 3), (40, 8, 4)]:
        yield f"pedigree {people}x{loci}", pedigree(people, loci, seed=seed)
    for inputs, gates in [(14, 60), (16, 120), (18, 300), (20, 100)]:
        yield f"circuit {inputs}+{gates}", circuit(inputs, gates, seed=inputs)
    for reach in (20, 30, 40):
        yield f"pipeline {reach}", circuit(reach // 2, 400, reach=reach, seed=reach)
    for facts, steps in [(12, 10), (16, 20), (18, 40)]:
        yield f"plan {facts}x{steps}", plan(facts, steps, seed=facts)


def compare(name: str, graph: FactorGraph, most: float) -> list[Any]:
    """One row of the table."""
    tree, cutset, sparse = get("junction-tree"), get("cutset"), get("sparse")
    assert isinstance(tree, JunctionTree) and isinstance(cutset, Cutset)
    core = graph.core.graph
    orders = SparseOrders.of(core)
    left = orders.possible.core.graph
    zeros = float(np.isneginf(left.tables).mean())
    dense = tree.best_order(left.structure).operations
    try:
        split = cutset.split(core, "marginals", Limits(max_operations=math.inf)).cost.operations
    except TooLargeError:
        split = math.nan
    row = [name, graph.n_variables, zeros, math.log2(dense), math.log2(split) if split else 0.0,
           math.log2(max(orders.rows, 1.0))]  # fmt: skip
    kept: list[Any] = []
    try:
        took = seconds(lambda: kept.append(sparse.marginals(core, max_operations=most)), 1, False)
        row += [math.log2(kept[0].info["rows"]), took]
    except TooLargeError:
        return [*row, math.nan, math.nan, math.nan, math.nan]
    if dense > DENSE:
        return [*row, math.nan, math.nan]
    other: list[Any] = []
    took = seconds(lambda: other.append(tree.marginals(left)), 1, False)
    inner = sparse.marginals(left)
    return [*row, took, float(np.abs(inner.nodes.flat - other[0].nodes.flat).max())]


def main(arguments: list[str] | None = None) -> None:
    """Try all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, default=2e8)
    parser.add_argument("wanted", nargs="*", help="parts of names")
    options = parser.parse_args(arguments)
    get("sparse").marginals(circuit(3, 3))  # compiles
    rows = []
    for name, graph in models():
        if not options.wanted or any(part in name for part in options.wanted):
            rows.append(compare(name, graph, options.rows))
            print(*(f"{x:.3g}" if isinstance(x, float) else x for x in rows[-1]), flush=True)
    columns = ["model", "variables", "zeros", "log2 dense", "log2 split", "log2 expected",
               "log2 rows", "seconds", "dense seconds", "difference"]  # fmt: skip
    print_table("Marginals of models with zeros", columns, rows)
    print_json({"rows": [dict(zip(columns, row, strict=True)) for row in rows]})


if __name__ == "__main__":
    main()
