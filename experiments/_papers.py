"""The five papers: every figure, table and theorem they number, and why some cannot be run here."""

from __future__ import annotations

from dataclasses import dataclass

from experiments._rows import Row


@dataclass(frozen=True)
class Paper:
    """A paper and its numbered items: figures and tables of appendices, too.

    ``items`` has the theorems, too (or what the paper calls its main results), but not the lemmas
    of their proofs.
    """

    short: str
    title: str
    items: tuple[str, ...]


def numbered(kind: str, *numbers: object) -> tuple[str, ...]:
    return tuple(f"{kind} {n}" for n in numbers)


PAPERS = {
    "sdca_crf": Paper(
        "SDCA for CRFs",
        "R. Le Priol, Stochastic dual coordinate ascent for conditional random fields (2017), "
        "and the data sets of the later paper (Le Priol, Piché, Lacoste-Julien, UAI 2018)",
        numbered("Figure", 1, 2),
    ),
    "idal": Paper(
        "IDAL",
        "S. Hu and G. Obozinski, SDCA-powered inexact dual augmented Lagrangian method for fast "
        "CRF learning (2018)",
        numbered("Figure", 1) + numbered("Table", 1, 2, 3, 4) + numbered("Lemma", 1)
        + numbered("Corollary", 1, 2, 3, 4, 5) + numbered("Proposition", 1, 2, 3, 4, 5, 6),
    ),
    "gdmm": Paper(
        "GDMM",
        "I. Yen, X. Huang, K. Zhong, R. Zhang, P. Ravikumar and I. Dhillon, Dual decomposed "
        "learning with factorwise oracles for structural SVM of large output domain (2016)",
        numbered("Figure", 1, 2, 3) + numbered("Theorem", 1, 2),
    ),
    "casimir": Paper(
        "Casimir",
        "K. Pillutla, V. Roulet, S. Kakade and Z. Harchaoui, A smoother way to train "
        "structured prediction models (2019)",
        numbered("Figure", *range(1, 14)) + numbered("Table", 1, 2, 3, 4)
        + numbered("Theorem", 16, 35),
    ),
    "barrier_frank_wolfe": Paper(
        "Barrier Frank-Wolfe",
        "R. Krishnan, S. Lacoste-Julien and D. Sontag, Barrier Frank-Wolfe for marginal inference "
        "(2015)",
        numbered("Figure", 1, 2, 3, 4, 5) + numbered("Theorem", "3.4", "3.5"),
    ),
}  # fmt: skip

PICTURE = "an explanation"
NOTATION = "notation"
IDENTITY = "identities of the proofs (certificates, which rest on Proposition 5, are tested)"
WORST_CASE = "rates of worst cases"
#: Reasons of items that measure nothing.
NOTHING = (PICTURE, NOTATION, IDENTITY, WORST_CASE)
VOC = ("needs PASCAL VOC 2007 and the features of a trained network, which are not at hand "
       "(generated pictures stand in: see the figure's other line)")  # fmt: skip
NOT_YET = "not run yet"
BARRIER = "barrier_frank_wolfe"


def one(name: str, paper: str, item: str, shows: str, reason: str = NOT_YET) -> Row:
    return Row(name, paper, (item,), shows, reason=reason)


#: Rows for items of which no module has a row; they give way to one that has.
WITHOUT_RUN = [
    one("idal/figure1", "idal", "Figure 1", "IDAL is sooner than SoftSDCA, SoftBCFW and GDMM."),
    one("idal/table1", "idal", "Table 1", "Regime, convergence and oracle of eight methods."),
    Row("idal/notation", "idal", ("Table 2", "Table 3", "Table 4"), "Notation.", reason=NOTATION),
    Row("idal/identities", "idal", ("Corollary 5", "Proposition 4", "Proposition 5",
        "Proposition 6"), "The augmented problem, its dual, and how they relate to the first ones.",
        reason=IDENTITY),
    one("gdmm/factors", "gdmm", "Figure 1", "Large factors, and many of them.", PICTURE),
    one("gdmm/iterations", "gdmm", "Figure 2", "GDMM needs fewer iterations than Soft-BCFW."),
    one("gdmm/time", "gdmm", "Figure 3", "Objective and test error against time."),
    one("casimir/trellis", "casimir", "Figure 1", "The Viterbi trellis, smoothed.", PICTURE),
    one("casimir/ner", "casimir", "Figure 2", "Convex methods on CoNLL-2003."),
    one("casimir/localization", "casimir", "Figure 3", "Convex methods on PASCAL VOC 2007."),
    one("casimir/deep", "casimir", "Figure 4", "Non-convex methods on PASCAL VOC 2007."),
    one("casimir/hyperparameters", "casimir", "Figure 5", "Smoothing, warm starts and K."),
    one("casimir/smoothing", "casimir", "Figure 6", "Smoothing of the prox-linear method."),
    one("casimir/prox-linear", "casimir", "Figure 7", "Rate, budget and warm start of it."),
    Row("casimir/classes", "casimir", ("Figure 8", "Figure 9", "Figure 10"),
        "Figure 3 for the other classes of PASCAL VOC 2007.", reason=VOC),
    Row("casimir/deep-classes", "casimir", ("Figure 11", "Figure 12", "Figure 13"),
        "Figure 4 for the other classes of PASCAL VOC 2007.", reason=VOC),
    Row("casimir/rates", "casimir", ("Table 1", "Table 3", "Table 4", "Theorem 16"),
        "Numbers of oracle calls and iterations to a given accuracy.", reason=WORST_CASE),
    one("casimir/oracles", "casimir", "Table 2", "Costs of max, top-K and exp oracles."),
    one("barrier/points", BARRIER, "Figure 3", "The four points of a proof.", PICTURE),
    Row("barrier/characters", BARRIER, ("Figure 4",),
        "Marginals of three more Chinese characters beside those of TRBP.",
        reason="needs the Hanja2 models of OpenGM's benchmark, which are not at hand "
               "(a frustrated model of that size is run for Figure 2)"),
]  # fmt: skip
