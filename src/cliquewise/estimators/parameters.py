"""The parameters of all estimators: one table per estimator, one row per parameter.

A table is a dataclass, and a row is a field made by :func:`parameter`. It holds the default, the
validation rule, the role, whether model files hold the value, the command-line option, and the
restrictions with data on disk and on a cluster. From these rows are derived

* the constructor, as the estimator inherits from its table;
* validation in ``fit`` (:func:`check_parameters`);
* what model files hold and may set (:func:`saved_parameters`, :func:`check_file_parameters`): a
  file cannot set anything that acts, such as a path, or that belongs to one machine or one run;
* when a certificate is still valid: while no parameter with the role ``"objective"`` changes;
* options, help texts and groups of the command line (``cliquewise.cli.options``);
* the restrictions of shards and Dask (:func:`check_supported`).

A new parameter needs a row here, a line in the docstring of its estimator, its use and a test.
This module imports neither scikit-learn nor compiled code, because ``--help`` needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, Field, dataclass, field, replace
from functools import cache
from typing import Any, Literal

import numpy as np

from cliquewise.errors import DataError, ParameterError, UnsupportedError

Role = Literal["model", "objective", "run"]
#: Situations in which some parameters, or some of their values, are not supported.
Setting = Literal["shards", "shards on disk", "dask"]

# ---- validation rules


@dataclass(frozen=True)
class Rule:
    """A test for values, and its description in an error message.

    Parameters
    ----------
    accepts : callable
        Gets a plain value (no NumPy arrays or scalars) and returns whether it is valid.
    description : str
        Completes the sentence "the parameter must be ..."; empty for values that the message
        does not mention.
    words : tuple of str
        The strings that it accepts, if these are few; options of the command line show them.
    """

    accepts: Callable[[Any], bool]
    description: str
    words: tuple[str, ...] = ()

    def __or__(self, other: Rule) -> Rule:
        return Rule(
            lambda value: self.accepts(value) or other.accepts(value),
            " or ".join(text for text in (self.description, other.description) if text),
            self.words + other.words,
        )


def one_of(*words: str) -> Rule:
    """Accept some strings."""
    description = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
    return Rule(lambda v: isinstance(v, str) and v in words, description, words)


def number(low: float, high: float = np.inf) -> Rule:
    """Accept numbers in a closed interval."""

    def accepts(v: Any) -> bool:
        return isinstance(v, int | float) and not isinstance(v, bool) and low <= v <= high

    words = f"a number >= {low:g}" if high == np.inf else f"a number from {low:g} to {high:g}"
    return Rule(accepts, words)


def integer(low: int, high: int) -> Rule:
    """Accept integers in a closed interval."""
    description = (
        f"an integer >= {low}" if high >= 2**31 - 1 else f"an integer from {low} to {high}"
    )
    return Rule(lambda v: is_integer(v, low, high), description)


def list_of(item: Rule, items: str) -> Rule:
    """Accept lists and tuples whose items are valid; ``items`` names them in the plural."""
    return Rule(
        lambda v: isinstance(v, list | tuple) and all(map(item.accepts, v)), f"a list of {items}"
    )


def table_of_items(item: Rule, items: str) -> Rule:
    """Accept lists of lists whose items are valid."""
    rows = list_of(list_of(item, items), "rows")
    return Rule(rows.accepts, f"a table of {items}")


NONE = Rule(lambda v: v is None, "None")
FLAG = Rule(lambda v: isinstance(v, bool | int | float) and v in (0, 1), "True or False")
STRING = Rule(lambda v: isinstance(v, str), "a string")
ANYTHING = Rule(lambda _: True, "any value")
#: Values that JSON cannot hold, such as solver instances; other code checks these.
PYTHON_OBJECT = Rule(lambda v: not is_plain(v), "")
POSITIVE = number(1e-300, 1e100)
LABEL = Rule(lambda v: isinstance(v, str | int | float), "a label")
LABEL_PAIR = Rule(
    lambda v: isinstance(v, list | tuple) and len(v) == 2 and all(map(LABEL.accepts, v)),
    "a pair (label, next label)",
)
WEIGHTS = NONE | one_of("balanced") | Rule(lambda v: isinstance(v, dict), "a dict of weights")
COSTS = NONE | table_of_items(Rule(lambda v: _is_cost(v), ""), "costs") | PYTHON_OBJECT
THREADS = NONE | Rule(
    lambda v: is_integer(v, -(2**31), 2**31) and v != 0, "an integer other than 0"
)
SEED = NONE | integer(0, 2**128) | list_of(integer(0, 2**128), "such integers") | PYTHON_OBJECT


def is_integer(value: Any, low: int, high: int) -> bool:
    """Return whether a value is an integer, not a boolean, in a closed interval.

    Examples
    --------
    >>> is_integer(3, 0, 5), is_integer(True, 0, 5), is_integer(3.0, 0, 5)
    (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def check_integer(value: Any, name: str, low: int = 0, high: int = 2**31) -> int:
    """Return an integer that was read from a file, or raise a DataError that names it."""
    if not is_integer(value, low, high):
        raise DataError(f"{name} is {value!r:.40}, not an integer from {low} to {high}")
    return int(value)


def is_plain(value: Any) -> bool:
    """Return whether JSON can hold a value: None, a string, a number, or nested lists of these."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return value is None or isinstance(value, str | bool | int | float)


def to_plain(value: Any) -> Any:
    """Convert NumPy arrays and scalars, also those inside lists, to lists and Python scalars.

    Examples
    --------
    >>> import numpy as np
    >>> to_plain([np.arange(2), np.float64(0.5)])
    [[0, 1], 0.5]
    """
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list):
        return [to_plain(item) for item in value]
    return tuple(to_plain(item) for item in value) if type(value) is tuple else value


# ---- rows


@dataclass(frozen=True)
class Option:
    """The command-line option of a parameter.

    Parameters
    ----------
    group : str
        The heading in ``--help`` under which it appears.
    flag : str, optional
        By default ``--`` and the name, with dashes. A flag that begins with ``--no-`` sets a
        parameter to False that is True by default.
    help : str, optional
        By default the help text of the parameter.
    metavar : str, optional
        What ``--help`` shows in place of the value.
    type : type, optional
        By default that of the annotation.
    default : object, optional
        By default that of the parameter.
    old_flags : tuple of str
        Former names, which work and are not shown.
    """

    group: str
    flag: str | None = None
    help: str | None = None
    metavar: str | None = None
    type: type | None = None
    default: Any = None
    old_flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Restriction:
    """Values of a parameter that are not supported somewhere.

    Parameters
    ----------
    reason : str
        A message that says what is not supported, and what to do.
    values : tuple, optional
        The values; by default all except the parameter's default.
    """

    reason: str
    values: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Parameter:
    """One row of a table; see :func:`parameter`."""

    default: Any
    rule: Rule
    role: Role
    help: str
    is_saved: bool = True
    file_rule: Rule | None = None
    option: Option | None = None
    restrictions: Mapping[Setting, Restriction] = field(default_factory=dict)
    old_name: str | None = None
    name: str = ""

    @property
    def flag(self) -> str:
        """The command-line flag."""
        given = None if self.option is None else self.option.flag
        return given or "--" + self.name.replace("_", "-")


def parameter(default: Any, rule: Rule, role: Role, help: str, **more: Any) -> Any:
    """Return a dataclass field that is a row of a parameter table.

    Parameters
    ----------
    default : object
    rule : Rule
        Which values ``fit`` accepts.
    role : {"model", "objective", "run"}
        ``model``: defines which weights exist; files hold the value that training used.
        ``objective``: changes the function that training minimizes; a certificate is valid only
        for the values that training used. ``run``: changes how training runs.
    help : str
        One sentence for ``--help``.
    is_saved : bool, default=True
        Whether model files hold the value.
    file_rule : Rule, optional
        Which values a file may set; by default ``rule``.
    option : Option, optional
        The command-line option; None if there is none.
    restrictions : dict of str to Restriction, optional
        What is not supported for ``shards``, for ``shards on disk`` (too large for memory) and on
        a ``dask`` cluster.
    old_name : str, optional
        A former name, which works with a FutureWarning.
    """
    row = Parameter(default, rule, role, help, **more)
    return field(default=default, metadata={"parameter": row})


# ---- rows that several tables share


def _max_epochs(default: float) -> Any:
    return parameter(
        default, number(0), "run", "Stop after this number of passes over the data.",
        option=Option("Training", metavar="N"),
    )  # fmt: skip


def _intercept() -> Any:
    return parameter(
        True, FLAG, "model", "Give each label a weight on every token.",
        option=Option("Model", "--no-intercept", help="Do not give each label an intercept."),
    )  # fmt: skip


def _n_jobs(default: int | None) -> Any:
    return parameter(
        default, THREADS, "run", "Use this number of threads; -1 uses all processors.",
        is_saved=False, option=Option("Training", "--jobs", metavar="N", type=int),
    )  # fmt: skip


def _class_weight(**more: Any) -> Any:
    return parameter(
        None, WEIGHTS | PYTHON_OBJECT, "objective",
        "Weight examples by their labels: balanced gives rare labels larger weights.", **more,
    )  # fmt: skip


def _loss(default: str, *losses: str, **more: Any) -> Any:
    return parameter(
        default, one_of(*losses), "objective",
        f"Minimize this loss: {', '.join(losses)}.", **more,
    )  # fmt: skip


def _C(rule: Rule = POSITIVE, default: Any = 1.0, **more: Any) -> Any:
    return parameter(
        default, rule, "objective",
        "Weight the losses by this against the penalty; larger values regularize less.",
        **{"option": Option("Model", metavar="C"), **more},
    )  # fmt: skip


def _gamma(help_text: str) -> Any:
    return parameter(
        1.0, number(0, 1e300), "objective", help_text, option=Option("Model", metavar="G")
    )


def _dtype() -> Any:
    return parameter(
        "float64", one_of("float64", "float32"), "run",
        "Store the solver's state with this precision.", option=Option("Training"),
    )  # fmt: skip


# ---- tables


@dataclass(eq=False, repr=False)
class TrainingParameters:
    """Parameters of every estimator."""

    _: KW_ONLY
    l1_ratio: float = parameter(
        0.0, number(0, 1), "objective",
        "Set the share of the L1 norm in the penalty, from 0 (ridge) to 1 (lasso).",
        option=Option("Model", metavar="R"),
    )  # fmt: skip
    solver: Any = parameter(
        "auto", STRING | PYTHON_OBJECT, "run",
        "Train with this solver, such as sdca, lbfgs, owlqn or bcfw; auto chooses one.",
        file_rule=Rule(lambda v: _is_solver(v), "auto or the name of a solver"),
        option=Option("Training", metavar="NAME", type=str),
    )  # fmt: skip
    tol: float = parameter(
        1e-3, number(0), "run", "Stop when the relative duality gap is at most this.",
        option=Option("Training", metavar="GAP"),
    )  # fmt: skip
    max_epochs: float = _max_epochs(1000)
    max_seconds: float | None = parameter(
        None, NONE | number(0), "run", "Stop after this number of seconds.",
        option=Option("Training", metavar="S"),
    )  # fmt: skip
    max_memory: float = parameter(
        8.0, number(0), "run", "Let the solver's state use at most this many GiB.",
        option=Option("Long runs", metavar="GIB"),
    )  # fmt: skip
    random_state: Any = parameter(
        None, SEED, "run", "Set the random seed; results with one thread are then reproducible.",
        option=Option("Training", "--seed", metavar="N", type=int, default=0),
    )  # fmt: skip
    verbose: int = parameter(
        0, FLAG | integer(0, 100), "run", "Show a progress line.", is_saved=False,
        option=Option("Long runs", "--quiet", help="Do not show a progress line."),
    )  # fmt: skip


def cluster_client() -> Any:
    """Return the row of the parameter ``client`` of estimators on a Dask cluster."""
    return parameter(None, ANYTHING, "run", "Use this Dask client.", is_saved=False)


@dataclass(eq=False, repr=False)
class SequenceTaggerParameters(TrainingParameters):
    """Parameters of :class:`~cliquewise.SequenceTagger`."""

    loss: str = _loss(
        "log", "log", "pseudo_likelihood", "softmax_margin", "hinge", "smooth_hinge",
        option=Option("Model", metavar="NAME"),
        restrictions={
            "shards": Restriction(
                'loss="pseudo_likelihood" is not supported for Shards; fit on lists in memory',
                ("pseudo_likelihood",),
            )
        },
    )  # fmt: skip
    C: float | str = _C(
        POSITIVE | one_of("auto"),
        option=Option(
            "Model",
            metavar="C|auto",
            help="Weight the losses by this against the penalty; larger values regularize less, "
            "and auto chooses a value on held-out sequences.",
        ),
        restrictions={
            setting: Restriction(
                f'C="auto" is not supported {where}; choose C on a sample in memory', ("auto",)
            )
            for setting, where in (("shards", "for Shards"), ("dask", "on a cluster"))
        },
    )
    _: KW_ONLY
    max_epochs: float = _max_epochs(100)
    feature_pairs: str = parameter(
        "all", one_of("all", "seen"), "model",
        "Give weights to all pairs of an attribute and a label, or only to those seen in training.",
        option=Option("Model"),
    )  # fmt: skip
    transitions: Any = parameter(
        "all",
        one_of("all", "seen", "BIO", "BIOES") | table_of_items(FLAG, "booleans") | PYTHON_OBJECT,
        "model",
        "Give weights to all transitions or to seen ones, or forbid what BIO or BIOES forbids.",
        option=Option("Model"),
    )
    forbidden_transitions: Any = parameter(
        None, NONE | list_of(LABEL_PAIR, "pairs (label, next label)") | PYTHON_OBJECT, "model",
        "Forbid these pairs of a label and the next label.", old_name="forbidden",
    )  # fmt: skip
    intercept: bool = _intercept()
    boundary_weights: bool = parameter(
        True, FLAG, "model", "Give each label a weight on the first and on the last token.",
        old_name="boundaries",
        option=Option(
            "Model", "--no-boundary-weights", old_flags=("--no-boundaries",),
            help="Do not give each label weights on the first and the last token.",
        ),
    )  # fmt: skip
    template: Any = parameter(
        None, ANYTHING, "run",
        "Make attributes from columns by a CRF++ or Wapiti template file, or by a built-in one: "
        "columns, chunking or ner.",
        is_saved=False,  # files hold it as a part of the encoder
        option=Option("Files", metavar="NAME|FILE", type=str),
    )  # fmt: skip
    sequence_column: str | None = parameter(
        None, NONE | Rule(STRING.accepts, "the name of a column (a string)"), "run",
        "Read the sequence of each row of a table from this column.", old_name="by",
    )  # fmt: skip
    n_hash: int | None = parameter(
        None, NONE | integer(1, 2**31 - 1), "model",
        "Hash attributes into this number of features instead of storing their names.",
        option=Option("Model", metavar="N"),
    )  # fmt: skip
    min_count: int = parameter(
        1, integer(1, 2**31 - 1), "model",
        "Drop attributes that occur on fewer than this number of tokens.",
        option=Option("Model", metavar="N"),
    )  # fmt: skip
    class_weight: Any = _class_weight(
        restrictions={
            "shards": Restriction(
                "class_weight is not supported for Shards; let the source provide weights: a "
                "function that yields (sequence, labels, weight), or @weight in CRFsuite files"
            )
        },
    )
    cost: Any = parameter(
        None, COSTS, "objective", "Set the cost of each wrong label.",
        restrictions={
            "shards": Restriction(
                "cost is not supported for Shards, where every wrong label costs 1; leave it out, "
                "or fit on lists in memory"
            ),
            "dask": Restriction(
                "cost is not supported on a cluster, where every wrong label costs 1"
            ),
        },
    )  # fmt: skip
    n_jobs: int | None = _n_jobs(1)
    device: str | None = parameter(
        None, ANYTHING, "run",
        "Train with PyTorch on this device, such as cuda; this needs the extra torch.",
        is_saved=False, option=Option("Training", metavar="NAME"),
        restrictions={"dask": Restriction("device is not supported on a cluster, whose workers "
                                          "train on CPUs")},
    )  # fmt: skip
    dtype: str = _dtype()
    checkpoint: Any = parameter(
        None, ANYTHING, "run", "Store the state of training in this file at regular intervals.",
        is_saved=False, option=Option("Long runs", metavar="FILE", type=str),
        restrictions={
            "shards on disk": Restriction(
                "checkpoint has no effect with data on disk, where the dual variables are stored "
                "as well; resume=True continues from them"
            )
        },
    )  # fmt: skip
    checkpoint_seconds: float = parameter(
        60.0, number(0), "run", "Wait this number of seconds between checkpoints.",
        is_saved=False, option=Option("Long runs", metavar="S"),
    )  # fmt: skip
    resume: bool = parameter(
        False, FLAG, "run", "Continue from the checkpoint file, or from the cache, if it exists.",
        is_saved=False, option=Option("Long runs"),
    )  # fmt: skip
    gamma: float = _gamma("Set the amount of smoothing of the loss smooth_hinge.")
    smoother: str = parameter(
        "l2", one_of("l2", "entropy"), "objective",
        "Smooth the loss smooth_hinge over the best labelings (l2) or over all (entropy).",
        option=Option("Model"),
    )  # fmt: skip


@dataclass(eq=False, repr=False)
class MulticlassParameters(TrainingParameters):
    """Parameters of :class:`~cliquewise.MulticlassClassifier`."""

    C: float = _C()
    _: KW_ONLY
    loss: str = _loss("log", "log", "hinge")
    intercept: bool = _intercept()
    class_weight: Any = _class_weight()
    n_jobs: int | None = _n_jobs(1)
    dtype: str = _dtype()


@dataclass(eq=False, repr=False)
class GraphParameters(TrainingParameters):
    """Parameters that :class:`GraphLabelerParameters` and :class:`MultiLabelParameters` share."""

    loss: str = _loss("log", "log", "softmax_margin", "hinge")
    C: float = _C()
    _: KW_ONLY
    gamma: float = _gamma("Set the amount of smoothing of the objective.")
    entropy: str = parameter(
        "gini", one_of("gini", "gini-otrw"), "objective",
        "Smooth with this entropy.",
    )  # fmt: skip
    epsilon: float = parameter(0.9, number(0, 1), "objective", "Set the weight of the entropy.")
    inference: str = parameter(
        "auto", STRING, "run", "Predict with this inference method.",
        file_rule=Rule(lambda v: _is_oracle(v), "auto or the name of an inference method"),
    )  # fmt: skip
    intercept: bool = _intercept()


@dataclass(eq=False, repr=False)
class GraphLabelerParameters(GraphParameters):
    """Parameters of :class:`~cliquewise.GraphLabeler`."""

    _: KW_ONLY
    pairwise: str = parameter(
        "table",
        one_of("table", "symmetric", "potts", "co-occurrence"),
        "model",
        "Score the labels of neighbors in this form.",
    )
    class_weight: Any = _class_weight()
    cost: Any = parameter(None, COSTS, "objective", "Set the cost of each wrong label.")
    ignore_label: Any = parameter(
        None, NONE | LABEL, "run", "Treat nodes with this label as unlabeled, as those with None."
    )


@dataclass(eq=False, repr=False)
class MultiLabelParameters(GraphParameters):
    """Parameters of :class:`~cliquewise.MultiLabelClassifier`."""

    _: KW_ONLY
    C: float | str = _C(POSITIVE | one_of("auto"), "auto")  # type: ignore[assignment]
    label_graph: Any = parameter(
        "auto",
        one_of("auto", "complete", "none", "tree")
        | integer(0, 2**31)
        | list_of(list_of(integer(0, 2**31) | STRING, "labels"), "pairs of labels")
        | PYTHON_OBJECT,
        "model",
        "Give weights to these pairs of labels.",
    )
    pairs: str = parameter(
        "table", one_of("table", "co-occurrence"), "model", "Score pairs of labels in this form."
    )
    penalize_intercept: bool | str = parameter(
        "auto", FLAG | one_of("auto"), "objective",
        "Include intercepts in the penalty; auto does only where a solver needs it.",
    )  # fmt: skip
    calibrate: bool = parameter(
        False, FLAG, "run", "Fit a factor and an offset of the scores to held-out rows."
    )
    n_jobs: int | None = _n_jobs(None)


@dataclass(eq=False, repr=False)
class MatcherParameters(TrainingParameters):
    """Parameters of :class:`~cliquewise.Matcher`."""

    loss: str = parameter(
        "auto",
        Rule(
            one_of("auto", "pseudo_likelihood", "hinge").accepts,
            "auto, pseudo_likelihood or hinge (the likelihood of a matching is a permanent, which "
            "takes exponential time)",
            ("auto", "pseudo_likelihood", "hinge"),
        ),
        "objective",
        "Minimize this loss: auto, pseudo_likelihood or hinge.",
    )
    C: float = _C()
    _: KW_ONLY
    partial: bool = parameter(True, FLAG, "model", "Allow nodes without a partner.")
    intercept: bool = _intercept()
    cost_missing: float = parameter(
        1.0, number(0, 1e100), "objective", "Set the cost of a missing pair."
    )
    cost_wrong: float = parameter(
        1.0, number(0, 1e100), "objective", "Set the cost of a wrong pair."
    )
    n_jobs: int | None = _n_jobs(1)


@dataclass(eq=False, repr=False)
class CandidateRankerParameters(TrainingParameters):
    """Parameters of :class:`~cliquewise.CandidateRanker`."""

    loss: str = _loss("hinge", "log", "hinge")
    C: float = _C()
    _: KW_ONLY
    n_jobs: int | None = _n_jobs(1)


# ---- what is derived from a table


@cache
def table_of(cls: type) -> Mapping[str, Parameter]:
    """Return the rows of a table, or of an estimator that inherits from one, by name.

    A subclass that only changes a default keeps the row of its base class.

    Examples
    --------
    >>> table_of(SequenceTaggerParameters)["tol"].default
    0.001
    """
    rows: dict[str, Parameter] = {}
    for base in reversed(cls.__mro__):
        own: Mapping[str, Field[Any]] = base.__dict__.get("__dataclass_fields__", {})
        for name, entry in own.items():
            row = entry.metadata.get("parameter", rows.get(name))
            if row is not None:
                rows[name] = replace(row, name=name, default=entry.default)
    return rows


def names_with_role(cls: type, role: Role) -> tuple[str, ...]:
    """Return the names of the parameters with a role.

    Examples
    --------
    >>> names_with_role(MulticlassParameters, "objective")
    ('l1_ratio', 'C', 'loss', 'class_weight')
    """
    return tuple(name for name, row in table_of(cls).items() if row.role == role)


def old_names(cls: type) -> Mapping[str, str]:
    """Return the new name of each renamed parameter.

    Examples
    --------
    >>> old_names(SequenceTaggerParameters)["by"]
    'sequence_column'
    """
    return _old_names(cls)


@cache
def _old_names(cls: type) -> Mapping[str, str]:
    renamed = {}
    for name, row in table_of(cls).items():
        if row.old_name is not None:
            renamed[row.old_name] = name
    return renamed


def check_parameters(cls: type, values: Mapping[str, Any]) -> None:
    """Raise a ParameterError if a value cannot be used in training.

    Examples
    --------
    >>> check_parameters(SequenceTaggerParameters, {"tol": -1.0})
    Traceback (most recent call last):
    ...
    cliquewise.errors.ParameterError: tol must be a number >= 0, not -1.0
    """
    for name, row in table_of(cls).items():
        if name in values and not row.rule.accepts(to_plain(values[name])):
            raise ParameterError(name, row.rule.description, values[name])


def check_supported(cls: type, values: Mapping[str, Any], setting: Setting) -> None:
    """Raise an UnsupportedError if a value is not supported in a setting.

    Parameters
    ----------
    cls : type
    values : dict
    setting : {"shards", "shards on disk", "dask"}
    """
    for name, row in table_of(cls).items():
        limit = row.restrictions.get(setting)
        if limit is None or name not in values:
            continue
        value = values[name]
        is_default = value is row.default or (is_plain(value) and value == row.default)
        if is_default if limit.values is None else not (is_plain(value) and value in limit.values):
            continue
        raise UnsupportedError(limit.reason).concerning(name)


def saved_parameters(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that a model file holds: those that JSON can hold, as plain values."""
    rows = table_of(cls)
    plain = {
        name: to_plain(value)
        for name, value in values.items()
        if name not in rows or rows[name].is_saved
    }
    return {name: value for name, value in plain.items() if is_plain(value)}


def check_file_parameters(cls: type, values: Any) -> dict[str, Any]:
    """Check parameters that were read from a model file; return them by their current names.

    Raises
    ------
    DataError
        If a parameter is unknown, a file may not set it, or its value is out of range.
    """
    if not isinstance(values, dict):
        raise DataError("its parameters are not names with values")
    rows, renamed = table_of(cls), old_names(cls)
    current = {str(renamed.get(name, name)): value for name, value in values.items()}
    for name, value in current.items():
        if name not in rows or not rows[name].is_saved:
            raise DataError(f"a file may not set the parameter {name!r:.40}")
        rule = rows[name].file_rule or rows[name].rule
        if not is_plain(value) or not rule.accepts(value):
            raise ParameterError(name, rule.description, value)
    return current


def _is_cost(value: Any) -> bool:
    from cliquewise.data.dataset import MOST_COST

    return number(0, MOST_COST).accepts(value)


def _is_solver(value: Any) -> bool:
    if value == "auto":  # without importing all solvers
        return True
    from cliquewise.solvers.registry import registered

    # Solvers of networks are registered as well once PyTorch is imported.
    return isinstance(value, str) and value in {
        solver.name for solver in registered() if set(solver.capabilities.losses) != {"deep"}
    }


def _is_oracle(value: Any) -> bool:
    if value == "auto":  # without importing all inference methods
        return True
    from cliquewise.oracles.planner import method_names

    return isinstance(value, str) and value in method_names()
