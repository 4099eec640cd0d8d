"""BIF and XMLBIF: networks with names, written by hand, and files that are wrong."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import cliquewise as cw
from cliquewise.errors import FormatError, GraphError

SPRINKLER = """
// Parents in another order than declared, a full table, a default row, comments.
network "wet grass" { property version 1; }
variable Grass { type discrete [ 2 ] { dry, wet }; property position = (1, 2); }
variable Rain { type discrete[2] { no yes }; }
variable Sprinkler { type discrete [ 2 ] { off, on }; }
probability ( Rain ) { table 0.8 0.2; }
probability ( Sprinkler | Rain ) {
  table 0.6, 0.99,  /* off given no rain, off given rain */
        0.4, 0.01;
}
probability ( Grass | Sprinkler, Rain ) {
  (on, no) 0.1, 0.9;
  (on, yes) 0.01, 0.99;
  (off, yes) 0.2, 0.8;
  default 1.0, 0.0;
}
"""

CANCER = """
network unknown { }
variable Pollution { type discrete [ 2 ] { low, high }; }
variable Smoker { type discrete [ 2 ] { True, False }; }
variable Cancer { type discrete [ 2 ] { True, False }; }
variable Xray { type discrete [ 2 ] { positive, negative }; }
variable Dyspnoea { type discrete [ 2 ] { True, False }; }
probability ( Pollution ) { table 0.9, 0.1; }
probability ( Smoker ) { table 0.3, 0.7; }
probability ( Cancer | Pollution, Smoker ) {
  (low, True) 0.03, 0.97;
  (high, True) 0.05, 0.95;
  (low, False) 0.001, 0.999;
  (high, False) 0.02, 0.98;
}
probability ( Xray | Cancer ) { (True) 0.9, 0.1; (False) 0.2, 0.8; }
probability ( Dyspnoea | Cancer ) { (True) 0.65, 0.35; (False) 0.3, 0.7; }
"""

EARTHQUAKE = """<?xml version="1.0"?>
<!DOCTYPE BIF [ <!ELEMENT BIF (NETWORK)*> <!ELEMENT NAME (#PCDATA)> ]>
<BIF VERSION="0.3"><NETWORK><NAME>earthquake</NAME>
<VARIABLE TYPE="nature"><NAME>Burglary</NAME>
 <OUTCOME>True</OUTCOME><OUTCOME>False</OUTCOME></VARIABLE>
<VARIABLE TYPE="nature"><NAME>Earthquake</NAME>
 <OUTCOME>True</OUTCOME><OUTCOME>False</OUTCOME></VARIABLE>
<VARIABLE TYPE="nature"><NAME>Alarm</NAME>
 <OUTCOME>True</OUTCOME><OUTCOME>False</OUTCOME></VARIABLE>
<VARIABLE TYPE="nature"><NAME>JohnCalls</NAME>
 <OUTCOME>True</OUTCOME><OUTCOME>False</OUTCOME></VARIABLE>
<VARIABLE TYPE="nature"><NAME>MaryCalls</NAME>
 <OUTCOME>True</OUTCOME><OUTCOME>False</OUTCOME></VARIABLE>
<DEFINITION><FOR>Burglary</FOR><TABLE>0.01 0.99</TABLE></DEFINITION>
<DEFINITION><FOR>Earthquake</FOR><TABLE>0.02 0.98</TABLE></DEFINITION>
<DEFINITION><FOR>Alarm</FOR><GIVEN>Burglary</GIVEN><GIVEN>Earthquake</GIVEN>
<TABLE>0.95 0.05 <!-- no earthquake --> 0.94 0.06  0.29 0.71  0.001 0.999</TABLE></DEFINITION>
<DEFINITION><FOR>JohnCalls</FOR><GIVEN>Alarm</GIVEN><TABLE>0.90 0.10 0.05 0.95</TABLE></DEFINITION>
<DEFINITION><FOR>MaryCalls</FOR><GIVEN>Alarm</GIVEN><TABLE>0.70 0.30 0.01 0.99</TABLE></DEFINITION>
</NETWORK></BIF>"""


def network(text: str) -> cw.FactorGraph:
    return cw.read_bif(io.BytesIO(text.encode()))


def enumerated(graph: cw.FactorGraph, wanted: dict[str, str], given: dict[str, str]) -> float:
    """P(wanted | given) by summing over all labelings."""
    states = np.stack(np.unravel_index(np.arange(np.prod(graph.cardinalities)),
                                       graph.cardinalities), axis=1)  # fmt: skip
    p = np.exp(graph.score(states))

    def held(said: dict[str, str]) -> np.ndarray:
        keep = np.ones(len(states), dtype=bool)
        for name, state in said.items():
            v = graph.variable(name)
            keep &= states[:, v] == graph.states[v].index(state)
        return keep

    return float(p[held(wanted) & held(given)].sum() / p[held(given)].sum())


def test_the_sprinkler_is_less_probable_once_rain_is_known() -> None:
    graph = network(SPRINKLER)
    assert graph.names == ("Grass", "Rain", "Sprinkler")
    assert graph.states[1] == ("no", "yes")
    wet = graph.query("Rain", {"Grass": "wet"})
    assert wet["yes"] == pytest.approx(0.3576876, abs=1e-6)  # Russell and Norvig
    for given in ({"Grass": "wet"}, {"Grass": "wet", "Rain": "yes"}, {}):
        on = graph.query(["Sprinkler"], given)["on"]
        assert on == pytest.approx(enumerated(graph, {"Sprinkler": "on"}, given))


def test_a_joint_query_sums_to_one_and_equals_enumeration() -> None:
    graph = network(CANCER)
    joint = graph.query(["Smoker", "Cancer"], {"Dyspnoea": "True"})
    assert joint.probabilities.sum() == pytest.approx(1.0)
    for smoker in ("True", "False"):
        for cancer in ("True", "False"):
            wanted = {"Smoker": smoker, "Cancer": cancer}
            expected = enumerated(graph, wanted, {"Dyspnoea": "True"})
            assert joint[smoker, cancer] == pytest.approx(expected)
    assert str(joint).splitlines()[0].split() == ["Smoker", "Cancer", "probability"]
    assert joint.to_frame().shape == (4, 3)


def test_xmlbif_has_the_variable_itself_vary_fastest() -> None:
    graph = network(EARTHQUAKE)
    assert graph.query("Alarm", {"Burglary": "True", "Earthquake": "False"})["True"] == (
        pytest.approx(0.94)
    )
    given = {"JohnCalls": "True", "MaryCalls": "True"}
    expected = enumerated(graph, {"Burglary": "True"}, given)
    assert graph.query("Burglary", given)["True"] == pytest.approx(expected)


@pytest.mark.parametrize("text", [SPRINKLER, CANCER, EARTHQUAKE])
@pytest.mark.parametrize("name", ["net.bif", "net.xml", "net.bif.gz", "net.xmlbif.gz"])
def test_what_is_written_is_read_again(text: str, name: str, tmp_path: Path) -> None:
    graph = network(text)
    cw.write_bif(graph, tmp_path / name)
    again = cw.read_bif(tmp_path / name)
    assert (again.names, again.states) == (graph.names, graph.states)
    for (scope, table), (old_scope, old_table) in zip(again.factors, graph.factors, strict=True):
        assert scope == old_scope
        np.testing.assert_allclose(np.exp(table), np.exp(old_table), rtol=1e-12)


def test_names_with_blanks_quotes_and_markup_survive(tmp_path: Path) -> None:
    states = {'a "b"': ["x y", "</OUTCOME>", "//", "\\"], "c,d": ["(", ")"]}
    table = np.random.default_rng(0).dirichlet([1, 1], 4)
    graph = cw.FactorGraph.from_cpts({'a "b"': [0.25] * 4, "c,d": (['a "b"'], table)}, states)
    for name in ("net.bif", "net.xml"):
        cw.write_bif(graph, tmp_path / name)
        again = cw.read_bif(tmp_path / name)
        assert (again.names, again.states) == (graph.names, graph.states)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0.9, 0.1;", "0.9, 0.3;", "'Pollution' sums to 1.2, not to one"),
        ("(low, True) 0.03, 0.97;", "", r"no probabilities given \('low', 'True'\)"),
        ("(low, True)", "(low, Maybe)", "line 11: 'Smoker' has no state 'Maybe'"),
        ("(low, True)", "(True)", r"1 states for the 2 parents"),
        ("0.03, 0.97", "0.03", "1 probabilities of 'Cancer' where 2 belong"),
        ("0.03, 0.97", "0.03, x", "expected numbers"),
        ("[ 2 ] { low, high }", "[ 3 ] { low, high }", "declares 3 states and lists 2"),
        ("probability ( Smoker ) { table 0.3, 0.7; }", "", "'Smoker' has no probabilities"),
        ("( Smoker )", "( Smokey )", "'Smokey', which is not declared"),
        ("( Xray | Cancer )", "( Xray | Cancer", "variable '{', which is not declared"),
        ("network unknown { }", "digraph { }", "expected 'network', 'variable' or 'probability'"),
    ],
)
def test_wrong_files_get_one_clear_line(old: str, new: str, message: str) -> None:
    assert old in CANCER
    with pytest.raises(FormatError, match=message) as error:
        network(CANCER.replace(old, new))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no variable"),
        ("<BIF>", "no XML"),
        ("<BIF></BIF>", "no VARIABLE"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><BIF/>', "declares entities"),
        (EARTHQUAKE.replace("0.02 0.98", "0.02"), "1 probabilities of 'Earthquake'"),
        (EARTHQUAKE.replace("<FOR>Alarm</FOR>", ""), "a DEFINITION has no FOR"),
    ],
)
def test_empty_and_broken_files_are_named(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        network(text)


def test_graphs_that_are_no_networks_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="factor 0 is no table of conditional probabilities"):
        cw.write_bif(cw.FactorGraph([2], [((0,), [0.0, 3.0])]), tmp_path / "x.bif")
    with pytest.raises(GraphError, match="'x1' has no table"):
        cw.write_bif(cw.FactorGraph([2, 2], [((0,), np.log([0.5, 0.5]))]), tmp_path / "x.bif")


@pytest.mark.parametrize(
    ("cpts", "message"),
    [
        ({"A": [0.5, 0.6]}, "the table of 'A' sums to 1.1, not to one"),
        ({"A": [-0.7, -0.7]}, "look like logarithms"),
        ({"A": (["B"], [[1.0, 0.0]])}, "parent 'B', which has no table"),
        ({"A": [0.5, 0.5], "B": (["A"], [0.5, 0.5])}, "one per parent"),
        ({"A": [0.5, 0.5], "B": (["A"], [[0.5, 0.5]])}, "needs shape"),
        ({"A": (["B"], np.eye(2)), "B": (["A"], np.eye(2))}, "circle: "),
        ({"A": (["A"], np.eye(2))}, "itself"),
        ({"A": "x"}, "no array of numbers"),
    ],
)
def test_tables_that_are_no_probabilities_say_why(cpts, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        cw.FactorGraph.from_cpts(cpts)


def test_zeros_need_no_warning_and_forbid(recwarn) -> None:
    graph = cw.FactorGraph.from_cpts({"A": [1.0, 0.0], "B": (["A"], np.eye(2))})
    assert graph.query("B")[1] == 0.0
    assert not recwarn


def test_probabilities_handed_in_as_logarithms_are_noticed(recwarn) -> None:
    with pytest.warns(UserWarning, match="looks like probabilities"):
        cw.FactorGraph([2, 2], [((0,), [0.8, 0.2]), ((0, 1), [[0.9, 0.1], [0.01, 0.99]])])
    recwarn.clear()
    cw.FactorGraph([2, 2], [((0,), [0.0, 1.0]), ((0, 1), np.eye(2))])
    cw.FactorGraph([2, 2], [((0,), [0.3, 1.0]), ((0, 1), np.eye(2))])
    assert not recwarn


def test_the_command_line_reads_networks(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from cliquewise.cli import main

    (tmp_path / "cancer.bif").write_text(CANCER)
    done = CliRunner().invoke(main, ["infer", str(tmp_path / "cancer.bif"), "--task", "MAR"])
    assert done.exit_code == 0, done.output
    assert "MAR" in done.output


def test_an_empty_number_of_states_and_nan_are_errors_with_a_line():
    text = "network n {{ }}\nvariable a {{ type discrete [ {} ] {{ t, f }}; }}\n"
    text += "probability ( a ) {{ table {}; }}\n"
    for count, values, message in (
        ("", "0.5, 0.5", "line 2: variable 'a' declares no number of states"),
        ("2", "0.8, nan", "line 3: NaN is not a probability"),
    ):
        with pytest.raises(FormatError, match=message):
            cw.read_bif(io.BytesIO(text.format(count, values).encode()))


def test_bif_0_15_lists_a_variable_and_then_its_parents():
    text = b"""network "dogs" { property "version 0.15" ; }
    variable "out" { //2 values
      type discrete[2] { "true" "false" }; property "position = (1, 2)" ;
    }
    variable "ill" { type discrete[2] { "true" "false" }; }
    variable "light" { type discrete[2] { "true" "false" }; }
    probability ( "out" ) { table 0.15 0.85 ; }
    probability ( "ill" ) { table 0.01 0.99 ; }
    probability ( "light" "out" "ill" ) { table 0.6 0.5 0.4 0.05 0.4 0.5 0.6 0.95 ; }"""
    graph = cw.read_bif(io.BytesIO(text))
    lit = graph.condition({"out": "true", "ill": "false"}).query("light")
    assert np.asarray(lit.probabilities)[0] == pytest.approx(0.5)
    dark = graph.condition({"out": "false", "ill": "true"}).query("light")
    assert np.asarray(dark.probabilities)[0] == pytest.approx(0.4)
