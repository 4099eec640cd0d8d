"""BIF and XMLBIF: Bayesian networks with names, as bnlearn, pgmpy, GeNIe and others write them.

Tables stand there as probabilities. A network is read into a :class:`FactorGraph` whose factor
``v`` is the table of variable ``v``, its parents first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import numpy as np

from cliquewise.data.formats._numbers import Source, read_bytes
from cliquewise.data.formats.text import open_writer
from cliquewise.errors import FormatError, GraphError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.ragged import Floats

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|,)|(?P<quoted>"(?:[^"\\]|\\.)*")"""
    r"""|(?P<mark>[{}()\[\];|])|(?P<word>[^\s{}()\[\];|,"]+)""",
    re.DOTALL,
)
#: Tables of more entries than this are refused.
MOST_ENTRIES = 50_000_000


def read_bif(source: Source) -> FactorGraph:
    """Read a Bayesian network in BIF (0.15 or later) or XMLBIF, plain or compressed.

    Parameters
    ----------
    source : path or binary file

    Returns
    -------
    FactorGraph
        With names of variables and states.

    Examples
    --------
    >>> import io
    >>> text = b'''network n {} variable Rain { type discrete [2] { no, yes }; }
    ... probability ( Rain ) { table 0.8, 0.2; }'''
    >>> print(read_bif(io.BytesIO(text)).query("Rain"))
    Rain  probability
    no       0.800000
    yes      0.200000
    """
    data, name = read_bytes(source)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    parse = _parse_xml if text.lstrip().startswith("<") else _parse_bif
    states, tables = parse(text, name)
    if missing := [v for v in states if v not in tables]:
        raise FormatError(f"variable {missing[0]!r} has no probabilities", name)
    cpts = {v: (list(tables[v][0]), tables[v][1]) for v in states}
    try:
        return FactorGraph.from_cpts(cpts, states=states)
    except GraphError as error:
        raise FormatError(str(error), name) from error


def write_bif(graph: FactorGraph, path: str | Path, name: str = "unknown") -> None:
    """Write a Bayesian network; as XMLBIF where the path ends in ``.xml`` or ``.xmlbif``.

    Every variable needs one factor that is its conditional probabilities, its own axis last, as
    :meth:`FactorGraph.from_cpts` and :func:`read_bif` make them.

    Examples
    --------
    >>> import tempfile
    >>> graph = FactorGraph.from_cpts({"Rain": [0.8, 0.2]}, states={"Rain": ["no", "yes"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_bif(graph, Path(folder) / "rain.bif")
    ...     read_bif(Path(folder) / "rain.bif").states
    (('no', 'yes'),)
    """
    network = _network_of(graph)
    xml = Path(path).name.removesuffix(".gz").endswith((".xml", ".xmlbif"))
    with open_writer(path) as file:
        for line in (_xml_lines if xml else _bif_lines)(network, name):
            file.write(line + "\n")


# ---- BIF


class _Tokens:
    """Tokens of a BIF file; errors name the line."""

    def __init__(self, text: str, name: str):
        self.text, self.name, self.at = text, name, 0

    def next(self) -> str:
        """The next token, or the empty string at the end."""
        while self.at < len(self.text):
            found = _TOKEN.match(self.text, self.at)
            if found is None:
                self.fail(f"cannot read {self.text[self.at : self.at + 20]!r}")
            self.at = found.end()
            if found.lastgroup == "quoted":
                return re.sub(r"\\(.)", r"\1", found[0][1:-1])
            if found.lastgroup != "skip":
                return found[0]
        return ""

    def expect(self, *wanted: str) -> str:
        """One of these tokens."""
        token = self.next()
        if token not in wanted:
            found = repr(token) if token else "the end of the file"
            self.fail(f"expected {' or '.join(map(repr, wanted))}, found {found}")
        return token

    def until(self, *ends: str) -> tuple[list[str], str]:
        """Tokens up to one of ``ends``, and which it was."""
        tokens: list[str] = []
        while (token := self.next()) not in ends:
            if not token:
                self.fail(f"the file ends before {' or '.join(map(repr, ends))}")
            tokens.append(token)
        return tokens, token

    def skip_block(self) -> None:
        """Skip a block in braces, including nested blocks."""
        self.expect("{")
        depth = 1
        while depth:
            token = self.next()
            if not token:
                self.fail("the file ends within braces")
            depth += (token == "{") - (token == "}")

    def numbers(self, words: list[str]) -> Floats:
        """Return words as numbers; NaN is not a probability."""
        try:
            values = np.array([float(word) for word in words])
        except ValueError:
            self.fail(f"expected numbers, found {' '.join(words)[:60]!r}")
        if np.isnan(values).any():
            self.fail(f"NaN is not a probability: {' '.join(words)[:60]!r}")
        return values

    def fail(self, message: str) -> NoReturn:
        """Say what is wrong, and where."""
        raise FormatError(message, self.name, self.text.count("\n", 0, self.at) + 1)


_Network = tuple[dict[str, list[str]], dict[str, tuple[list[str], Floats]]]


def _parse_bif(text: str, name: str) -> _Network:
    tokens = _Tokens(text, name)
    states: dict[str, list[str]] = {}
    tables: dict[str, tuple[list[str], Floats]] = {}
    while token := tokens.next():
        if token == "network":
            tokens.next()
            tokens.skip_block()
        elif token == "variable":
            variable, listed = _variable(tokens)
            if variable in states:
                tokens.fail(f"variable {variable!r} is declared twice")
            states[variable] = listed
        elif token == "probability":
            child, parents, table = _probability(tokens, states)
            if child in tables:
                tokens.fail(f"variable {child!r} has probabilities twice")
            tables[child] = parents, table
        else:
            tokens.fail(f"expected 'network', 'variable' or 'probability', found {token[:40]!r}")
    if not states:
        tokens.fail("there is no variable; is it a BIF file?")
    return states, tables


def _variable(tokens: _Tokens) -> tuple[str, list[str]]:
    name = tokens.next()
    tokens.expect("{")
    listed: list[str] = []
    while (token := tokens.next()) != "}":
        if token == "type":
            tokens.expect("discrete")
            tokens.expect("[")
            count = " ".join(tokens.until("]")[0])
            tokens.expect("{")
            listed, _ = tokens.until("}")
            tokens.expect(";")
            if count != str(len(listed)):
                tokens.fail(
                    f"variable {name!r} declares {count or 'no number of'} states and lists "
                    f"{len(listed)}: {listed[:10]}"
                )
        elif token == "property":
            tokens.until(";")
        else:
            tokens.fail(f"expected 'type', 'property' or '}}', found {token[:40]!r}")
    if not listed:
        tokens.fail(f"variable {name!r} has no states")
    return name, listed


def _probability(tokens: _Tokens, states: dict[str, list[str]]) -> tuple[str, list[str], Floats]:
    tokens.expect("(")
    heads, end = tokens.until("|", ")")
    if end == "|":
        parents = tokens.until(")")[0]
    else:  # BIF 0.15 lists the variable and then its parents
        heads, parents = heads[:1], heads[1:]
    if len(heads) != 1:
        tokens.fail(f"probabilities of one variable are expected, not of {heads}")
    for v in (*heads, *parents):
        if v not in states:
            tokens.fail(f"probabilities name variable {v!r}, which is not declared before")
    child = heads[0]
    shape = tuple(len(states[p]) for p in parents)
    _check_size(float(np.prod([float(k) for k in (*shape, len(states[child]))])), tokens.name)
    table = np.full((*shape, len(states[child])), np.nan)
    tokens.expect("{")
    while (token := tokens.next()) != "}":
        if token == "property":
            tokens.until(";")
            continue
        at: Any = ...
        if token == "(":
            at = _row(tokens, tokens.until(")")[0], parents, states)
        elif token not in ("table", "default"):
            tokens.fail(f"expected 'table', 'default', '(' or '}}', found {token[:40]!r}")
        values = tokens.numbers(tokens.until(";")[0])
        wanted = table.size if token == "table" else table.shape[-1]
        if len(values) != wanted:
            tokens.fail(f"{len(values)} probabilities of {child!r} where {wanted} belong")
        if token == "table":
            # The variable's own states vary slowest here, its last parent's fastest.
            table[:] = np.moveaxis(values.reshape(table.shape[-1], *shape), 0, -1)
        elif token == "default":
            table[np.isnan(table[..., 0])] = values
        else:
            table[at] = values
    if np.isnan(table).any():
        row = np.argwhere(np.isnan(table[..., 0]))[0]
        named = [states[p][k] for p, k in zip(parents, row, strict=True)]
        tokens.fail(f"{child!r} has no probabilities given {tuple(named)}")
    return child, parents, table


def _row(
    tokens: _Tokens, given: list[str], parents: list[str], states: dict[str, list[str]]
) -> tuple[int, ...]:
    if len(given) != len(parents):
        tokens.fail(f"{len(given)} states for the {len(parents)} parents {parents}")
    for p, state in zip(parents, given, strict=True):
        if state not in states[p]:
            tokens.fail(f"{p!r} has no state {state!r}; they are {states[p][:10]}")
    return tuple(states[p].index(state) for p, state in zip(parents, given, strict=True))


# ---- XMLBIF


def _parse_xml(text: str, name: str) -> _Network:
    if "<!ENTITY" in text:
        raise FormatError("the file declares entities, which no network needs", name)
    try:
        root = ElementTree.fromstring(text.encode())
    except (ElementTree.ParseError, ValueError) as error:
        raise FormatError(f"no XML: {error}", name) from error
    states: dict[str, list[str]] = {}
    for element in root.iter("VARIABLE"):
        variable = _text(element, "NAME", name)
        if variable in states:
            raise FormatError(f"variable {variable!r} is declared twice", name)
        states[variable] = [(o.text or "").strip() for o in element.iter("OUTCOME")]
    tables: dict[str, tuple[list[str], Floats]] = {}
    for element in root.iter("DEFINITION"):
        child = _text(element, "FOR", name)
        parents = [(g.text or "").strip() for g in element.iter("GIVEN")]
        for v in (child, *parents):
            if v not in states:
                raise FormatError(f"probabilities name variable {v!r}, which is not declared", name)
        if child in tables:
            raise FormatError(f"variable {child!r} has probabilities twice", name)
        shape = (*(len(states[p]) for p in parents), len(states[child]))
        _check_size(float(np.prod([float(k) for k in shape])), name)
        words = re.sub(r"<!--.*?-->", " ", _text(element, "TABLE", name)).split()
        try:
            values = np.array([float(word) for word in words])
        except ValueError as error:
            raise FormatError(f"the table of {child!r}: {error}", name) from error
        if values.size != np.prod(shape):
            raise FormatError(
                f"{values.size} probabilities of {child!r} where {np.prod(shape)} belong", name
            )
        tables[child] = parents, values.reshape(shape)
    if not states:
        raise FormatError("there is no VARIABLE; is it an XMLBIF file?", name)
    return states, tables


def _text(element: ElementTree.Element, tag: str, name: str) -> str:
    found = element.find(tag)
    if found is None:
        raise FormatError(f"a {element.tag} has no {tag}", name)
    return "".join(found.itertext()).strip()


def _check_size(entries: float, name: str) -> None:
    if entries > MOST_ENTRIES:
        raise FormatError(
            f"a table would have {entries:.3g} entries, more than {MOST_ENTRIES:.2g}", name
        )


# ---- writing


def _network_of(graph: FactorGraph) -> list[tuple[str, list[str], list[int], Floats]]:
    """Name, states, parents and table of every variable."""
    names = graph.names or tuple(f"x{v}" for v in range(graph.n_variables))
    states = graph.states or tuple(tuple(f"s{x}" for x in range(k)) for k in graph.cardinalities)
    found: dict[int, tuple[list[int], Floats]] = {}
    for f, (scope, logs) in enumerate(graph.factors):
        table = np.exp(logs)
        if not scope or scope[-1] in found or not np.allclose(table.sum(axis=-1), 1.0, atol=1e-9):
            raise GraphError(
                f"factor {f} is no table of conditional probabilities of its last variable; BIF "
                "holds Bayesian networks only, write_uai takes every graph"
            )
        found[scope[-1]] = list(scope[:-1]), table
    if len(found) < graph.n_variables:
        v = next(v for v in range(graph.n_variables) if v not in found)
        raise GraphError(f"variable {names[v]!r} has no table of probabilities; BIF needs one")
    return [(names[v], list(states[v]), *found[v]) for v in range(graph.n_variables)]


def _quoted(word: str) -> str:
    """A name as BIF has it: in quotes where it would not be one word."""
    if re.fullmatch(r"[^\s{}()\[\];|,\"/]+", word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _bif_lines(network: list[Any], name: str) -> Iterator[str]:
    yield f"network {_quoted(name)} {{\n}}"
    for variable, states, _, _ in network:
        listed = ", ".join(map(_quoted, states))
        yield f"variable {_quoted(variable)} {{"
        yield f"  type discrete [ {len(states)} ] {{ {listed} }};\n}}"
    for variable, _, parents, table in network:
        if not parents:
            yield f"probability ( {_quoted(variable)} ) {{\n  table {_row_text(table)};\n}}"
            continue
        given = ", ".join(_quoted(network[p][0]) for p in parents)
        yield f"probability ( {_quoted(variable)} | {given} ) {{"
        for row in product(*(range(k) for k in table.shape[:-1])):
            named = ", ".join(_quoted(network[p][1][k]) for p, k in zip(parents, row, strict=True))
            yield f"  ({named}) {_row_text(table[row])};"
        yield "}"


def _row_text(row: Floats) -> str:
    return ", ".join(repr(float(p)) for p in row)


def _xml_lines(network: list[Any], name: str) -> Iterator[str]:
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield f'<BIF VERSION="0.3">\n<NETWORK>\n<NAME>{escape(name)}</NAME>'
    for variable, states, _, _ in network:
        outcomes = "".join(f"<OUTCOME>{escape(s)}</OUTCOME>" for s in states)
        yield f'<VARIABLE TYPE="nature"><NAME>{escape(variable)}</NAME>{outcomes}</VARIABLE>'
    for variable, _, parents, table in network:
        given = "".join(f"<GIVEN>{escape(network[p][0])}</GIVEN>" for p in parents)
        numbers = " ".join(repr(float(p)) for p in table.ravel())
        yield (
            f"<DEFINITION><FOR>{escape(variable)}</FOR>{given}<TABLE>{numbers}</TABLE></DEFINITION>"
        )
    yield "</NETWORK>\n</BIF>"
