"""Plots for papers and notebooks: ``cw.plot`` (extra ``report``, matplotlib).

Every function draws on ``ax``, or on a new figure, and returns the axes. Colors are told apart by
the color-blind, lines differ in style and marker as well, and nothing global is changed: use
``ax.figure.savefig(...)`` or ``pyplot.show()`` yourself.
"""

from cliquewise.plot.graphs import graph
from cliquewise.plot.models import calibration, confusion, transitions, weights
from cliquewise.plot.training import convergence, regularization_path

__all__ = [
    "calibration",
    "confusion",
    "convergence",
    "graph",
    "regularization_path",
    "transitions",
    "weights",
]
