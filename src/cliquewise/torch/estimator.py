"""StructuredClassifier: train, apply and save a network with a structured output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError, FormatError, UnsupportedError
from cliquewise.persistence import read_arrays, write_arrays
from cliquewise.ragged import Floats
from cliquewise.solvers.base import (
    AnySolver,
    Arrays,
    Capabilities,
    Checkpointing,
    HasColumns,
    Info,
    Solver,
    State,
    Warm,
)
from cliquewise.solvers.progress import training_line
from cliquewise.solvers.run import run
from cliquewise.torch._scores import IGNORED
from cliquewise.torch.heads import Scorer, make_head
from cliquewise.torch.losses import LOSSES
from cliquewise.torch.problem import DeepProblem
from cliquewise.torch.prox_linear import ProxLinear
from cliquewise.torch.stochastic import SGD, Adam

_SOLVERS: dict[str, Any] = {"adam": Adam, "sgd": SGD, "prox_linear": ProxLinear}
Inputs: TypeAlias = "Tensor | Sequence[Tensor]"


def deep_solver(solver: str | AnySolver) -> AnySolver:
    """Return a solver for networks by its name, or itself.

    Examples
    --------
    >>> deep_solver("prox_linear").name
    'prox_linear'
    """
    if isinstance(solver, Solver):
        return solver
    if solver not in _SOLVERS:
        raise UnsupportedError(
            f"unknown solver {solver!r} for networks; they are: {', '.join(_SOLVERS)}"
        )
    found: AnySolver = _SOLVERS[solver]()
    return found


@dataclass
class _Watched(State):
    """A state of another solver, and the best weights on the validation set so far."""

    inner: Any
    best: Tensor | None = None
    score: float = -np.inf
    waited: int = 0

    @property
    def w(self) -> Tensor:
        """The weights that the other solver continues from."""
        w: Tensor = self.inner.w
        return w


@dataclass(frozen=True)
class EarlyStopping(Solver[DeepProblem, _Watched]):
    """Stop another solver when a validation score has not improved for some steps."""

    capabilities: ClassVar[Capabilities] = Capabilities({"deep": frozenset(LOSSES)})
    solver: AnySolver
    score: Callable[[Tensor], float]
    patience: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.solver.name)

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of the other solver, and the validation score."""
        own = self.solver.columns if isinstance(self.solver, HasColumns) else ()
        return (*own, "validation")

    def init(self, problem: DeepProblem, warm: Warm = None) -> _Watched:
        """Return a state of the other solver, without validation scores."""
        return _Watched(self.solver.init(problem, warm))

    def step(self, problem: DeepProblem, state: _Watched, rng: np.random.Generator) -> Info:
        """Make a step of the other solver, then compute the validation score."""
        info = self.solver.step(problem, state.inner, rng)
        # These may be an average of the iterates.
        w = torch.as_tensor(self.solver.weights(problem, state.inner)).to(state.w)
        score = self.score(w)
        if score > state.score:
            state.best, state.score, state.waited = w.clone(), score, 0
        else:
            state.waited += 1
        info.finished = info.finished or state.waited >= self.patience
        return info

    def weights(self, problem: DeepProblem, state: _Watched) -> Floats:
        """Return the best weights on the validation set."""
        if state.best is None:
            return self.solver.weights(problem, state.inner)
        return np.asarray(state.best.cpu().double().numpy())

    def certify(self, problem: DeepProblem, state: _Watched) -> Certificate:
        """Return the certificate of the other solver."""
        return self.solver.certify(problem, state.inner)

    def extras(self, problem: DeepProblem, state: _Watched) -> dict[str, float]:
        """Return the columns of the other solver, and the best validation score."""
        solver = self.solver
        own = solver.extras(problem, state.inner) if isinstance(solver, HasColumns) else {}
        return own | {"validation": state.score}

    def pack(self, state: _Watched) -> Arrays:
        """Return the arrays of the other solver, and the best weights."""
        assert isinstance(self.solver, Checkpointing)
        best = state.w if state.best is None else state.best
        own = {"watched_best": best.cpu().numpy(), "watched": np.array([state.score, state.waited])}
        arrays: Arrays = self.solver.pack(state.inner)
        return arrays | own

    def unpack(self, problem: DeepProblem, arrays: Arrays) -> _Watched:
        """Return a state from :meth:`pack`."""
        assert isinstance(self.solver, Checkpointing)
        score, waited = arrays["watched"]
        best = torch.as_tensor(arrays["watched_best"].copy()).to(problem.weights())
        return _Watched(self.solver.unpack(problem, arrays), best, float(score), int(waited))


class StructuredClassifier:
    """A network with a structured output: a chain of labels, one of many candidates, or a set.

    Parameters
    ----------
    module : nn.Module
        From inputs to scores: (B, T, K) of a chain, (B, M) of candidates, (B, L) of labels.
    structure : {"chain", "candidates", "multilabel"}
    loss : {"log", "hinge", "smooth_hinge", "softmax_margin"}
    solver : str or Solver
        ``adam``, ``sgd``, ``prox_linear``, or an instance with its settings.
    n_labels : int, optional
        K of a chain or L of a set.
    edges : sequence of pairs, optional
        Labels of a set that depend on each other; all pairs by default.
    lam : float
        Weight of the L2 penalty, per example.
    gamma : float
        Smoothing of the loss.
    batch_size, max_epochs, max_seconds
    patience : int
        With validation data: epochs without improvement before stopping.
    device : str
        ``auto`` takes a GPU if there is one.
    random_state : int, optional
    verbose : int
        Whether to show progress.

    Attributes
    ----------
    trace_, certificate_
        The training trace, and the certificate, whose status is ``none``.

    Examples
    --------
    >>> import torch
    >>> from cliquewise.torch import StructuredClassifier
    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(200, 6, 4)
    >>> y = (x[:, :, 0] > 0).long()
    >>> tagger = StructuredClassifier(
    ...     torch.nn.Linear(4, 2), "chain", n_labels=2, max_epochs=20, random_state=0,
    ...     solver="sgd")
    >>> tagger.fit(x, y).score(x, y) > 0.95
    True
    """

    def __init__(
        self,
        module: nn.Module,
        structure: str = "chain",
        loss: str = "log",
        solver: str | AnySolver = "adam",
        *,
        n_labels: int = 0,
        edges: Any = None,
        lam: float = 1e-5,
        gamma: float = 1.0,
        batch_size: int = 32,
        max_epochs: float = 20,
        max_seconds: float = float("inf"),
        patience: int = 3,
        device: str = "auto",
        random_state: int | None = None,
        verbose: int = 0,
    ) -> None:
        if structure != "candidates" and n_labels < 1:
            raise DataError(f"structure {structure!r} needs n_labels, the number of labels")
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.structure, self.loss, self.n_labels = structure, loss, n_labels
        self.solver = deep_solver(solver)
        self.device = torch.device(device)
        self.scorer = Scorer(module, make_head(structure, n_labels, edges)).to(self.device)
        self.lam, self.gamma, self.batch_size = lam, gamma, batch_size
        self.max_epochs, self.max_seconds, self.patience = max_epochs, max_seconds, patience
        self.random_state, self.verbose = random_state, verbose

    def _on_device(self, inputs: Inputs) -> tuple[Tensor, ...]:
        given = (inputs,) if isinstance(inputs, (Tensor, np.ndarray)) else tuple(inputs)
        return tuple(torch.as_tensor(x).to(self.device) for x in given)

    def _problem(self, inputs: Inputs, target: Any, extra: Any) -> DeepProblem:
        own = None if extra is None else torch.as_tensor(extra).to(self.device)
        return DeepProblem(
            self.scorer, self._on_device(inputs), torch.as_tensor(target).to(self.device), own,
            loss=self.loss, lam=self.lam, gamma=self.gamma, batch_size=self.batch_size,
        )  # fmt: skip

    def fit(
        self,
        inputs: Inputs,
        target: Any,
        extra: Any = None,
        *,
        validation: tuple[Any, ...] | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
    ) -> StructuredClassifier:
        """Train; with ``validation=(inputs, target[, extra])``, keep the best weights on that set.

        ``extra`` is the mask of chains (n, T), or the costs of candidates (n, M). A checkpoint
        is written about once a minute; ``resume`` continues from it.
        """
        problem = self._problem(inputs, target, extra)
        solver = self.solver
        reason = solver.refuses(problem)
        if reason is not None:
            raise UnsupportedError(f"solver {solver.name!r} {reason}")
        if validation is not None:
            solver = EarlyStopping(solver, self._validation(problem, validation), self.patience)
        seeded = self.random_state is not None
        with training_line(self.verbose, 0.0) as show, torch.random.fork_rng(enabled=seeded):
            if self.random_state is not None:
                torch.manual_seed(self.random_state)  # for dropout
            fit = run(
                problem, solver, tol=0.0, max_epochs=self.max_epochs,
                max_seconds=self.max_seconds, random_state=self.random_state, progress=show,
                checkpoint=checkpoint, resume=resume,
            )  # fmt: skip
        problem.set_weights(torch.as_tensor(fit.weights).to(problem.weights()))
        self.trace_, self.certificate_, self.solver_ = fit.trace, fit.certificate, fit.solver
        return self

    def _validation(self, problem: DeepProblem, data: tuple[Any, ...]) -> Any:
        """Return a function that maps weights to the validation score."""
        kept = problem.weights()

        def score(w: Tensor) -> float:
            problem.set_weights(w)
            try:
                return self.score(*data)
            finally:
                problem.set_weights(kept)

        return score

    def _apply(self, what: str, inputs: Inputs, extra: Any) -> Any:
        given = self._on_device(inputs)
        own = None if extra is None else torch.as_tensor(extra).to(self.device)
        found = []
        self.scorer.eval()
        method = getattr(self.scorer.head, what)
        with torch.no_grad():
            for first in range(0, len(given[0]), 256):
                part = slice(first, first + 256)
                scores = self.scorer(*(x[part] for x in given))
                found.append(method(scores, None if own is None else own[part]).cpu())
        return torch.cat(found).numpy()

    def predict(self, inputs: Inputs, extra: Any = None) -> Any:
        """Predict labels (n, T), candidates (n,) or label sets (n, L); 0 at masked positions."""
        return self._apply("predict", inputs, extra)

    def predict_marginals(self, inputs: Inputs, extra: Any = None) -> Any:
        """Predict probabilities: (n, T, K), (n, M), or of yes (n, L)."""
        return self._apply("probabilities", inputs, extra)

    def score(self, inputs: Inputs, target: Any, extra: Any = None) -> float:
        """Compute the accuracy (of positions, examples, or single labels of a set)."""
        truth = torch.as_tensor(target).cpu().numpy()
        right = self.predict(inputs, extra) == truth
        if self.structure == "chain":
            known = truth != IGNORED
            if extra is not None:
                known &= torch.as_tensor(extra).cpu().numpy().astype(bool)
            right = right[known]
        return float(right.mean())

    def save(self, path: str | Path) -> None:
        """Write all weights to a safetensors file; the module's code is not in it."""
        arrays = {n: x.detach().cpu().numpy() for n, x in self.scorer.state_dict().items()}
        header = {"kind": "torch", "structure": self.structure, "loss": self.loss}
        write_arrays(path, arrays, header | {"n_labels": self.n_labels})

    def load_weights(self, path: str | Path) -> StructuredClassifier:
        """Load weights written by :meth:`save` into the module of this classifier."""
        arrays, header = read_arrays(path)
        if header.get("kind") != "torch" or header.get("structure") != self.structure:
            raise FormatError(
                f"holds a {header.get('structure')!r} of kind {header.get('kind')!r}, not a "
                f"network for {self.structure!r}", path,
            )  # fmt: skip
        state = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        try:
            self.scorer.load_state_dict(state)
        except RuntimeError as error:
            raise FormatError(f"the weights do not match this module: {error}", path) from error
        return self
