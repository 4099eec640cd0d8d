"""Rescale graphs whose log-potentials are too large to be added up precisely.

What tells labelings apart is not how large the scores are but how they differ. So every table
is lowered by its peak: all scores become losses, zero or negative. Sums of losses have small
*relative* errors, whatever their sizes, and a labeling that matters is a sum of losses that are
no larger than its own. Methods that only add and compare (elimination) are as precise as float64
then. The others also subtract; for them two more things are done:

* losses far beyond that of a labeling already known are raised to a floor. None of the labelings
  that have them is best, or has a share of the probability above 1e-323;
* where only differences count (not for probabilities), losses are multiplied by a power of two.

Rounding is stated with every answer. Where it leaves nothing to say (probabilities of labelings
whose losses exceed 1e10, which float64 tells apart by 1e-6 at best), the question is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cliquewise.errors import PrecisionError
from cliquewise.graph.evidence import shift_steps
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.sizes import EPSILON, LARGEST, largest_finite, rounding_of
from cliquewise.oracles.base import NO_LIMITS, Fit, Limits, Oracle, Question
from cliquewise.oracles.registry import get
from cliquewise.ragged import Floats, Ragged

if TYPE_CHECKING:
    from cliquewise.oracles.results import MapResult

#: Log-potentials up to this size are added up as they are.
PLAIN = 1e6
#: Probabilities need losses below this.
RESOLVED = 1e10
#: A labeling that loses this much more than another one has no probability beside it in float64.
VANISHED = 745.0
#: The floor of losses where differences count, as a multiple of a loss that is enough. So far
#: away, an attractive edge seldom stops being attractive.
FLOOR = 64.0

#: Table entries up to which elimination finds a good labeling in milliseconds.
FAST_ENTRIES = 1e6
#: Questions that ask for probabilities, not for differences.
SUMS = ("marginals", "sample")


@dataclass(frozen=True)
class RescaledGraph:
    """Losses in place of log-potentials, and the translation of results.

    Attributes
    ----------
    original : FactorGraph
    graph : FactorGraph
        ``scale * (table - peak)`` in every table, raised to a floor.
    peaks : list of float
        The largest entry of every table.
    scale : float
        A power of two.
    """

    original: FactorGraph
    graph: FactorGraph
    peaks: list[float]
    scale: float = 1.0

    @classmethod
    def of(cls, graph: FactorGraph) -> RescaledGraph:
        """Subtract the largest entry from every table."""
        s = graph.structure
        peaks = np.maximum.reduceat(graph.tables, s.table_offsets[:-1])
        peaks[peaks == -np.inf] = 0.0
        losses = graph.tables - np.repeat(peaks, np.diff(s.table_offsets))
        return cls(graph, FactorGraph.from_structure(s, losses), peaks.tolist())

    # ---- for methods that subtract

    def narrowed(self, question: str) -> RescaledGraph:
        """Raise losses to a floor and scale them: as small as the question allows."""
        tables = self.graph.tables
        # Max-marginals and the k best labelings include bad ones.
        bounded = question in ("map", *SUMS)
        enough = _enough(self.graph, question, -good_score(self.graph)) if bounded else math.inf
        if question not in SUMS:
            enough *= FLOOR
        if enough < self.graph.largest:
            tables = np.where(tables > -np.inf, np.maximum(tables, -enough), tables)
        if question in SUMS:
            check_resolved(min(enough, self.graph.largest))
            return self._with(tables, 1.0)
        return self._scaled(tables, min(enough, self.graph.largest))

    def scaled(self) -> RescaledGraph:
        """Return the same losses, only scaled."""
        return self._scaled(self.graph.tables, self.graph.largest)

    def _scaled(self, tables: Any, largest: float) -> RescaledGraph:
        scale = 2.0 ** -math.ceil(math.log2(largest / PLAIN)) if largest > PLAIN else 1.0
        return self._with(tables * scale, scale)

    def _with(self, tables: Any, scale: float) -> RescaledGraph:
        graph = FactorGraph.from_structure(self.graph.structure, tables)
        return replace(self, graph=graph, scale=scale)

    # ---- the way back

    def restored(self, value: float, error: float = 0.0) -> float:
        """Translate a value to the original graph, and move it by a rounding error."""
        if math.isinf(value):
            return value
        total = math.fsum([*self.peaks, value / self.scale, error])
        return total + math.copysign(2 * EPSILON * abs(total), error) if error else total

    def rounding(self, value: float, only_adds: bool) -> float:
        """Return the rounding error of a value of the rescaled graph, in its units."""
        s = self.graph.structure
        if only_adds:
            return rounding_of(s, abs(value))
        starts = s.table_offsets[:-1]
        sizes = np.where(self.graph.tables == -np.inf, 0.0, -self.graph.tables)
        return rounding_of(s, float(np.maximum.reduceat(sizes, starts).sum()))

    def translate(self, question: str, answer: Any, oracle: Oracle) -> Any:
        """Translate a result to the original graph."""
        if question == "map":
            return self._labeling(answer, oracle)
        if question == "top_k":
            found = [self._labeling(one, oracle) for one in answer]
            return sorted(found, key=lambda one: -one.score)
        if question == "sample":
            return answer
        value = self.restored(answer.value)
        error = self.rounding(answer.value, oracle.only_adds) / self.scale
        error += 4 * EPSILON * abs(value)
        if question == "max_marginals":
            flat = answer.nodes.flat / self.scale + math.fsum(self.peaks)
            nodes = Ragged(flat, self.graph.structure.node_offsets)
            return replace(answer, nodes=nodes, value=value, rounding=error)
        lower, upper = answer.log_z_bounds
        if answer.exact:
            check_resolved(answer.log_z)
            lower = upper = answer.log_z
        bounds = (self.restored(lower, -error), self.restored(upper, error))
        return replace(answer, log_z=value, log_z_bounds=bounds, rounding=error)

    def _labeling(self, answer: MapResult, oracle: Oracle) -> MapResult:
        """Translate a labeling, with the score of the original graph rounded once."""
        labels = answer.labels[None]
        entries = np.concatenate([at[0] for at in self.original._entries(labels)])
        score = math.fsum(self.original.tables[entries])
        units = self.rounding(answer.score, oracle.only_adds)
        scale = self.graph.n_factors * max(1.0, abs(answer.score))
        error = units / self.scale + 2 * EPSILON * abs(score)
        steps = shift_steps(answer.info, self.restored)
        info = {**steps, "peaks": math.fsum(self.peaks), "scale": self.scale}
        exact = answer.exact and units <= 1e-9 * scale
        bound = score if exact else max(score, self.restored(answer.upper_bound, error))
        return replace(
            answer, score=score, upper_bound=bound, exact=exact, rounding=error, info=info
        )


def check_resolved(loss: float, whose: str = "") -> None:
    """Raise an error if losses are too large for float64 to resolve probabilities."""
    if not abs(loss) <= RESOLVED:
        raise PrecisionError(
            f"{whose}the labelings that matter lose {abs(loss):.3g} against the tables' largest "
            f"entries; beyond {RESOLVED:g} float64 holds no differences from which "
            "probabilities follow: divide the log-potentials (a temperature), or ask for the "
            "best labeling, which has no such limit"
        )


def check_chains_resolved(log_z: Floats, first: int = 0) -> None:
    """Apply `check_resolved` to chains after `level_chains`, numbered from ``first`` on."""
    # Large scores are lowered by their peaks, so that log Z is what the best one loses.
    lost = ~(log_z >= -RESOLVED)
    if lost.any():
        i = int(np.argmax(lost))
        check_resolved(float(log_z[i]), f"sequence {first + i}: ")


def level_chains(nodes: Floats, trans: Floats) -> tuple[Floats, Floats]:
    """Subtract the largest entry from every row and table of chains with large scores.

    Parameters
    ----------
    nodes : array (N, K)
        Log-scores; ``-inf`` forbids.
    trans : array (1 or E, K, K)

    Raises
    ------
    PrecisionError
        Where a score is NaN, infinite or so large that sums would overflow.
    """
    largest = np.maximum(largest_finite(nodes), largest_finite(trans))
    if largest <= PLAIN:
        return nodes, trans
    if not largest <= LARGEST:
        raise PrecisionError(
            f"scores of labels come to {largest:g}, beyond what can be added up (1e300): scale the "
            "features (StandardScaler, say), or train with more regularization"
        )
    return _lowered(nodes, 1), _lowered(trans, (1, 2))


def _lowered(scores: Floats, axis: Any) -> Floats:
    peaks = scores.max(axis=axis, keepdims=True)
    return scores - np.where(peaks > -np.inf, peaks, 0.0)


def rescale_for(rescaled: RescaledGraph, question: Question, oracle: Oracle) -> RescaledGraph:
    """Return the losses for an oracle: as they are, or as small as possible."""
    if oracle.only_adds:
        return rescaled
    narrowed = rescaled.narrowed(question)
    if oracle.consider(narrowed.graph, question, NO_LIMITS).fit is not Fit.REJECTED:
        return narrowed
    return rescaled.scaled()


def good_score(graph: FactorGraph) -> float:
    """Return the score of a good labeling: the MAP labeling where elimination is fast."""
    tree = get("tree") if graph.structure.is_forest else get("junction-tree")
    limits = Limits(max_operations=FAST_ENTRIES)
    is_fast = tree.consider(graph, "map", limits).can_answer
    return float((tree if is_fast else get("icm")).map(graph).score)


def _enough(graph: FactorGraph, question: str, loss: float) -> float:
    """Return a loss beyond which no labeling matters, from that of a good one."""
    if question in SUMS:
        return loss + VANISHED + float(np.log(graph.cardinalities).sum())
    return max(loss, 1.0)
