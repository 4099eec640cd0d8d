"""The commands fit, update, predict, evaluate and inspect: from files to tags."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

import cliquewise as cw
from cliquewise.cli import main
from cliquewise.cli.exit_codes import NOT_CONVERGED

TRAIN = """\
the DT B-NP
cat NN I-NP
sleeps VB B-VP

a DT B-NP
dog NN I-NP
barks VB B-VP
. . O

"""
CRFSUITE = "PLACE\tw=Rome\tlong:2\nNO\tw=is\n\n@weight:2\nNO\tw=was\nPLACE\tw=Paris\n\n"


def call(*arguments, stdin=None):
    return CliRunner().invoke(main, [str(a) for a in arguments], input=stdin)


def good(*arguments, stdin=None):
    result = call(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def bad(*arguments, stdin=None):
    result = call(*arguments, stdin=stdin)
    assert result.exit_code in (2, 3, 4), result.output
    assert "Traceback" not in result.output
    return result.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagging")
    (folder / "train").write_text(TRAIN)
    (folder / "train.crfsuite").write_text(CRFSUITE)
    good("fit", folder / "train", "--model", folder / "m.cw", "--quiet")
    good("fit", folder / "train.crfsuite", "--format", "crfsuite", "--model", folder / "c.cw")
    return folder


# ---- fit


def test_fit_prints_the_certificate_of_the_model_it_writes(folder, tmp_path):
    result = call("fit", folder / "train", "--model", tmp_path / "m.cw", "--tol", "1e-5")
    model = cw.load(tmp_path / "m.cw")
    assert model.certificate_.gap <= 1e-5
    assert f"relative gap {model.certificate_.gap:.2e}" in result.stdout
    assert f"{model.certificate_.dual:.8g}" in result.stdout
    assert "template columns" in result.stdout
    assert "(target 1e-05)" in result.stderr  # the progress line goes elsewhere


def test_fit_equals_the_estimator(folder, tmp_path):
    good(
        "fit", folder / "train", "--model", tmp_path / "m.cw", "--C", "2", "--tol", "1e-9",
        "--solver", "lbfgs", "--feature-pairs", "seen", "--transitions", "BIO", "--no-intercept",
        "--no-boundaries", "--min-count", "2", "--max-epochs", "500",
    )  # fmt: skip
    text, y = cw.data.read_conll(folder / "train").split_labels()
    tagger = cw.SequenceTagger(
        C=2, tol=1e-9, solver="lbfgs", feature_pairs="seen", transitions="BIO", intercept=False,
        boundary_weights=False, min_count=2, template="columns", max_epochs=500,
    ).fit(text, y)  # fmt: skip
    model = cw.load(tmp_path / "m.cw")
    assert model.coef_ == pytest.approx(tagger.coef_, abs=1e-6)
    assert model.feature_names() == tagger.feature_names()


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_fit_reads_compressed_files_and_takes_template_files(suffix, pack, tmp_path):
    path = tmp_path / f"train{suffix}"
    path.write_bytes(pack(TRAIN.encode()))
    (tmp_path / "template").write_text("U0:%x[0,1]\nB\n")
    good("fit", path, "--model", tmp_path / "m.cw", "--template", tmp_path / "template", "--quiet")
    assert cw.load(tmp_path / "m.cw").feature_names()[0] == "U0:DT"


@pytest.mark.parametrize("columns", [2, 3, 6])
def test_default_template_works_for_any_number_of_columns(columns, tmp_path):
    line = " ".join(["w", *"pqrs"[: columns - 2], "O"]) + "\n"
    (tmp_path / "t").write_text(line)
    shown = good("fit", tmp_path / "t", "--model", tmp_path / "m.cw", "--quiet")
    assert "template columns" in shown
    out = good("predict", "--model", tmp_path / "m.cw", tmp_path / "t")
    assert out.split() == [*line.split(), "O"]


def test_unconverged_training_warns_and_writes_the_model(folder, tmp_path):
    result = call(
        "fit", folder / "train", "--model", tmp_path / "m.cw", "--tol", "1e-9", "--max-epochs", "1"
    )
    assert result.exit_code == NOT_CONVERGED
    assert "warning: training stopped at relative gap" in result.stderr
    assert (tmp_path / "m.cw").exists()


def test_fit_resumes_from_a_checkpoint(folder, tmp_path):
    options = ["--model", tmp_path / "m.cw", "--checkpoint", tmp_path / "state", "--tol", "0"]
    first = call("fit", folder / "train", *options, "--max-epochs", "3", "--checkpoint-seconds", 0)
    assert first.exit_code == 0 and (tmp_path / "state").exists()
    second = call("fit", folder / "train", *options, "--max-epochs", "6", "--resume")
    assert "pass 1  " not in second.stderr and "6 epochs" in second.output


# ---- predict


def test_fit_encodes_a_file_larger_than_memory_into_a_folder(folder, tmp_path):
    options = "--quiet", "--max-memory", "0.5"
    given = folder / "train", "--model", tmp_path / "m.cw", "--cache", tmp_path / "cache"
    report = good("fit", *given, *options)
    assert "sequences    2 with 7 tokens" in report
    assert (tmp_path / "cache" / "manifest.json").exists()
    good("fit", *given, *options, "--resume")
    plain = good("predict", folder / "train", "--model", folder / "m.cw")
    assert good("predict", folder / "train", "--model", tmp_path / "m.cw") == plain
    assert "--cache DIR" in bad("fit", folder / "train", "--model", tmp_path / "m.cw", "--resume")


def test_predict_adds_the_tag_to_the_columns_with_or_without_labels(folder):
    out = good("predict", "--model", folder / "m.cw", folder / "train")
    expected = [f"{line} {line.split()[-1]}" if line else "" for line in TRAIN.split("\n")]
    assert out == "\n".join(expected)
    bare = "\n".join(line.rpartition(" ")[0] for line in TRAIN.split("\n"))
    assert good("predict", "--model", folder / "m.cw", stdin=bare) == TRAIN
    assert good("predict", "--model", folder / "m.cw", "-", "--batch", "1", stdin=bare) == TRAIN


def test_predict_writes_the_probability_of_every_label(folder):
    out = good("predict", "--model", folder / "m.cw", "--marginals", stdin="the DT\ncat NN\n")
    model = cw.load(folder / "m.cw")
    expected = model.predict_marginals([[["the", "DT"], ["cat", "NN"]]])[0]
    rows = [line.split() for line in out.split("\n") if line]
    for row, line in zip(rows, expected, strict=True):
        cells = [cell.rsplit("/", 1) for cell in row[3:]]
        assert [c for c, _ in cells] == model.classes_
        assert [float(p) for _, p in cells] == pytest.approx(line, abs=1e-6)


def test_predict_writes_the_best_labelings_with_their_probabilities(folder):
    out = good("predict", "--model", folder / "m.cw", "--top-k", "2", stdin="the DT\ncat NN\n")
    blocks = [b.split("\n") for b in out.strip().split("\n\n")]
    best = cw.load(folder / "m.cw").predict_top_k([[["the", "DT"], ["cat", "NN"]]], 2)[0]
    for rank, (block, (probability, tags)) in enumerate(zip(blocks, best, strict=True), 1):
        assert block[0].split()[:2] == ["#", str(rank)]
        assert float(block[0].split()[2]) == pytest.approx(probability, abs=1e-6)
        assert [line.split()[-1] for line in block[1:]] == tags


def test_predict_writes_spans_with_their_probabilities(folder):
    given = "the DT\ncat NN\n\nbarks VB\n"
    model, X = cw.load(folder / "m.cw"), [[["the", "DT"], ["cat", "NN"]], [["barks", "VB"]]]
    lines = good("predict", "--model", folder / "m.cw", "--spans", "best", stdin=given).split("\n")
    rows = [line.split("\t") for line in lines if line]
    expected = model.predict_spans(X, proba=True)
    assert [r[:4] + r[5:] for r in rows] == [
        ["0", "0", "2", "NP", "the cat"], ["1", "0", "1", "VP", "barks"]
    ]  # fmt: skip
    probabilities = [s.probability for spans in expected for s in spans]
    assert [float(r[4]) for r in rows] == pytest.approx(probabilities, abs=1e-6)
    options = ["--spans", "all", "--top-k", "3", "--threshold", ".01", "--format", "json"]
    out = good("predict", "--model", folder / "m.cw", *options, "--batch", "1", stdin=given)
    records = [json.loads(line) for line in out.split("\n") if line]
    expected = model.predict_spans(X, candidates="all", threshold=0.01, k=3)
    assert [r["sentence"] for r in records] == [0, 1] and records[0]["tokens"] == 2
    for record, spans in zip(records, expected, strict=True):
        assert [
            (s["start"], s["end"], s["type"], s["probability"]) for s in record["spans"]
        ] == spans
    assert records[0]["spans"][0]["text"] == "the cat"


def test_predict_reads_and_writes_compressed_files(folder, tmp_path):
    (tmp_path / "in.gz").write_bytes(gzip.compress(TRAIN.encode()))
    out = tmp_path / "out.xz"
    assert good("predict", "--model", folder / "m.cw", tmp_path / "in.gz", "--out", out) == ""
    plain = good("predict", "--model", folder / "m.cw", folder / "train")
    assert lzma.decompress(out.read_bytes()).decode() == plain


def test_predict_writes_only_tags_for_crfsuite_files(folder):
    tags = good("predict", "--model", folder / "c.cw", folder / "train.crfsuite")
    assert tags == "PLACE\nNO\n\nNO\nPLACE\n\n"
    assert good("predict", "--model", folder / "c.cw", "--batch", "1", stdin="?\tw=is") == "NO\n\n"


def test_predict_of_empty_input_writes_nothing(folder):
    for model in ("m.cw", "c.cw"):
        assert good("predict", "--model", folder / model, stdin="") == ""
        assert good("predict", "--model", folder / model, stdin="\n\n\n") == ""


def test_tabs_keep_spaces_inside_columns(tmp_path):
    (tmp_path / "t").write_text("New York\tB LOC\nis\tO\n\n")
    good("fit", tmp_path / "t", "--tabs", "--model", tmp_path / "m.cw", "--quiet", "--C", "9")
    out = good("predict", "--model", tmp_path / "m.cw", stdin="New York\nis\n")
    assert out == "New York\tB LOC\nis\tO\n\n"


@pytest.mark.medium
def test_predict_writes_each_batch_before_the_stream_ends(folder):
    command = [sys.executable, "-m", "cliquewise", "predict", "--batch", "1"]
    with subprocess.Popen(
        [*command, "--model", str(folder / "m.cw")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ},
    ) as process:  # fmt: skip
        process.stdin.write("the DT\ncat NN\n\nnext NN\n\n")
        process.stdin.flush()
        assert process.stdout.readline() == "the DT B-NP\n"
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(60) == 0


# ---- evaluate and inspect


def test_evaluate_counts_tokens_sequences_and_spans(folder, tmp_path):
    out = good("evaluate", "--model", folder / "m.cw", folder / "train")
    assert "token accuracy  100.00 %" in out and out.split("\n")[-2].split()[0] == "all"
    (tmp_path / "t").write_text(TRAIN.replace("barks VB B-VP", "barks VB B-NEW"))
    result = json.loads(
        good("evaluate", "--format", "json", "--model", folder / "m.cw", tmp_path / "t")
    )
    assert result["token_accuracy"] == pytest.approx(6 / 7)
    assert result["exact_match"] == 0.5 and result["unknown_labels"] == ["B-NEW"]
    assert result["spans"]["f1"] == pytest.approx(3 / 4)
    assert result["types"]["NP"]["f1"] == 1.0 and result["types"]["NEW"]["recall"] == 0.0


def test_evaluate_omits_spans_for_labels_that_are_not_span_labels(folder):
    result = json.loads(
        good("evaluate", "--format", "json", "--model", folder / "c.cw", folder / "train.crfsuite")
    )
    assert result["tokens"] == 4 and "spans" not in result


def test_inspect_shows_the_largest_weights(folder):
    out = good("inspect", "--model", folder / "m.cw", "--top", "2")
    name, weight = cw.load(folder / "m.cw").top_features("I-NP", 1)["I-NP"][0]
    assert f"{weight:+9.4f}  {name}" in out.split("\nI-NP\n")[1].split("\n")[0]
    assert "I-NP -> B-VP" in out.split("transitions")[1]
    only = good("inspect", "--model", folder / "m.cw", "--label", "O")
    assert "\nO\n" in only and "\nI-NP\n" not in only


def test_inspect_shows_a_classifier_too(tmp_path):
    cw.MulticlassClassifier().fit([[0.0], [1.0]], ["no", "yes"]).save(tmp_path / "m.cw")
    assert "\nyes\n" in good("inspect", "--model", tmp_path / "m.cw")


def test_inspect_refuses_a_model_whose_weights_have_no_names(tmp_path):
    cw.CandidateRanker().fit([[[0.0], [1.0]]], [1]).save(tmp_path / "m.cw")
    assert "CandidateRanker" in bad("inspect", "--model", tmp_path / "m.cw")
    assert "CandidateRanker" in bad("predict", "--model", tmp_path / "m.cw", tmp_path / "m.cw")
    assert "arrays of numbers" in bad("predict", "--model", tmp_path / "m.cw", stdin="a b\n")


# ---- what goes wrong ends with one line and status 2


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("a B\nc\n", [], "line 2"),
        ("\n", [], "no tokens"),
        ("word\n", [], "one column"),
        ("a A\n", ["--C", "0"], "--C must be a number"),
        ("a A\n", ["--loss", "huber"], "huber"),
        ("a A\n", ["--solver", "nonesuch"], "unknown solver"),
        ("a A\n", ["--transitions", "BIO"], "not of the scheme"),
        ("a A\n", ["--resume"], "--checkpoint"),
        ("a A\n", ["--template", "/no/such/file"], "/no/such/file"),
        ("a A\n", ["--template", "chunking"], "columns"),
        ("A\tw:x\n", ["--format", "crfsuite"], "line 1"),
        ("A\tw\n", ["--format", "crfsuite", "--template", "ner"], "--template"),
        (TRAIN, ["--format", "crfsuite"], "line 1: no tab in 'the DT B-NP'"),
        ("a A\n", ["--encoding", "klingon"], "klingon"),
        (b"a A\n\xff B\n", [], "line 2"),
    ],
)
def test_invalid_training_input_is_a_one_line_error(content, options, message, tmp_path):
    path = tmp_path / "train"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    error = bad("fit", path, "--model", tmp_path / "m.cw", "--quiet", *options)
    assert message in error
    assert not (tmp_path / "m.cw").exists()


def test_invalid_input_of_other_commands_is_a_one_line_error(folder, tmp_path):
    m = ["--model", folder / "m.cw"]
    assert "no such file" in bad("fit", folder / "train", "--model", "/no/such/m.cw").lower()
    assert "5 columns" in bad("predict", *m, stdin="a b c d e\n")
    assert "stdin, line 3" in bad("predict", *m, stdin="a b\n\nc\n")
    assert "stdin, line 1" in bad("predict", *m, stdin=b"\xff b\n")
    assert "stdin, line 3" in bad("predict", "--model", folder / "c.cw", stdin="A\tw\n\nB\tw:x\n")
    features = ["--model", folder / "c.cw"]  # trained on features, and given columns
    assert "stdin, line 1: no tab in 'a b'" in bad("predict", *features, stdin="a b\n")
    assert "no tab" in bad("evaluate", *features, folder / "train")
    assert "--top-k" in bad("predict", *m, "--marginals", "--top-k", "2", stdin="")
    assert "--marginals and --spans" in bad("predict", *m, "--marginals", "--spans", "best")
    assert "--threshold P or --top-k K" in bad("predict", *m, "--spans", "all")
    assert "for --spans" in bad("predict", *m, "--threshold", "0.5")
    spans = ["predict", "--model", folder / "c.cw", "--spans", "best"]
    assert "'NO' is no span label" in bad(*spans, stdin="?\tw=is")
    assert "trained on 2" in bad("evaluate", *m, _write(tmp_path / "four", "a b c d\n"))
    assert "is not a label" in bad("inspect", *m, "--label", "Z")
    assert "damaged" in bad("inspect", "--model", folder / "train")


def _write(path, text):
    path.write_text(text)
    return path


# ---- update


def test_update_reaches_the_optimum_on_all_sentences(tmp_path):
    news = "Anna NNP B-PER\nsleeps VB B-VP\n\nthe DT B-NP\ndog NN I-NP\n"
    first, more = _write(tmp_path / "first", TRAIN), _write(tmp_path / "more", news)
    whole = _write(tmp_path / "whole", TRAIN + news)
    model, new, at_once = tmp_path / "m.cw", tmp_path / "new.cw", tmp_path / "whole.cw"
    good("fit", first, "--model", model, "--tol", "1e-6")
    before = model.read_bytes()
    assert "train it with cliquewise fit --with-state" in bad("update", more, "--model", model)
    assert model.read_bytes() == before
    good("fit", first, "--model", model, "--tol", "1e-6", "--with-state")
    good("fit", whole, "--model", at_once, "--tol", "1e-6")
    before = model.read_bytes()
    said = good("update", more, "--model", model, "--out", new, "--quiet")
    assert "2 with 4 tokens" in said and "new labels   B-PER" in said
    assert model.read_bytes() == before
    own, other = cw.load(new).certificate_, cw.load(at_once).certificate_
    assert own.gap <= 1e-6 and own.dual <= other.primal and other.dual <= own.primal
    assert "new labels" not in good("update", first, "--model", new)
    assert good("predict", "--model", new, first) == good("predict", "--model", at_once, first)
    assert "trained on 2" in bad("update", _write(tmp_path / "one", "a O\n"), "--model", new)


def test_with_state_and_cache_exclude_each_other(folder):
    train = folder / "train"
    said = bad("fit", train, "--model", folder / "n.cw", "--with-state", "--cache", folder / "c")
    assert "--with-state does not work" in said and not (folder / "c").exists()


# ---- prune


def test_prune_writes_a_smaller_model_and_reports_the_objective(folder):
    small, train, model = folder / "small.cw", folder / "train", folder / "m.cw"
    said = good(
        "prune", train, "--model", model, "--out", small, "--keep", ".5", "--dtype", "float16"
    )
    before, after = cw.load(model), cw.load(small)
    assert after.n_nonzero_ < before.n_nonzero_
    assert small.stat().st_size < model.stat().st_size
    assert f"{before.certificate_.primal:.8g}" in said.split("before ")[1]
    shown = good("inspect", "--model", small)
    assert f"relative gap {after.certificate_.gap:.2e} (exact)" in shown and "nan" not in shown
    cut = folder / "cut.cw"
    after.set_params(C=2.0).save(cut)
    shown = good("inspect", "--model", cut)
    assert "C = 2, no certificate for these weights\n" in shown and "nan" not in shown
    rounded = folder / "rounded.cw"
    good("prune", train, "--model", model, "--out", rounded, "--dtype", "float32")
    assert good("predict", train, "--model", rounded) == good("predict", train, "--model", model)
    both = bad("prune", train, "--model", model, "--out", small, "--keep", 3, "--threshold", 1)
    assert "choose one of --threshold and --keep" in both


# ---- starting


def test_predict_imports_no_optional_packages(folder):
    """Importing cliquewise and predicting need none of the extras, nor scikit-learn."""
    code = f"""if True:
        import sys
        import cliquewise
        heavy = set("torch pandas dask matplotlib spacy narwhals pyarrow sklearn".split())
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
        from cliquewise.cli import main
        arguments = ["predict", {str(folder / "train")!r}, "--model", {str(folder / "m.cw")!r}]
        main(arguments, standalone_mode=False)
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


# ---- what strangers bring


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("# id 7\na X\nb Y\n", [], "start with # are comments, set --comment '#'"),
        ("New York\tX\na\tY\n", [], "if only tabs separate the columns, set --tabs"),
        ("a X\nb\n", [], "line 2: 1 columns, but line 1 has 2"),
        ("a,X\nb,Y\n", [], "separated by spaces or tabs"),
        ("a I-X\nb O\n", ["--transitions", "BIO"], "label 'I-X' is not allowed there"),
        ("a O\nb I-X\n", ["--transitions", "BIO"], "label 'I-X' follows 'O'"),
        ("a O\nb I-X\n", ["--transitions", "BIO"], "or use --transitions all"),
        (
            "a X\nb Y\n",
            ["--template", "nosuch"],
            "nor one of the built-in templates chunking, ner, columns",
        ),
    ],
)
def test_errors_about_training_files_suggest_a_flag(tmp_path, text, options, words):
    (tmp_path / "t").write_text(text)
    assert words in bad("fit", tmp_path / "t", "--model", tmp_path / "m.cw", "--quiet", *options)


def test_utf16_files_are_recognized_by_their_byte_order_mark(tmp_path):
    (tmp_path / "t").write_text("a X\nb Y\n", encoding="utf-16")
    told = bad("fit", tmp_path / "t", "--model", tmp_path / "m.cw", "--quiet")
    assert "--encoding utf-16" in told


def test_comment_prefix_is_stored_in_the_model(tmp_path):
    (tmp_path / "t").write_text("# one two three\na\tX\nb\tY\n\n# more\na\tX\n")
    model = tmp_path / "m.cw"
    told = good("fit", tmp_path / "t", "--comment", "#", "--model", model, "--quiet")
    assert "sequences    2 with 3 tokens" in told and "labels       2: X Y" in told
    assert good("predict", "--model", model, tmp_path / "t").splitlines()[0] == "a\tX\tX"
    assert "2 sequences, 3 tokens" in good("evaluate", "--model", model, tmp_path / "t")
    cached = tmp_path / "again.cw"
    options = ["--comment", "#", "--cache", tmp_path / "cache", "--model", cached, "--quiet"]
    assert "2 with 3 tokens" in good("fit", tmp_path / "t", *options)


def test_a_single_label_is_a_warning(tmp_path):
    (tmp_path / "t").write_text("a O\nb O\n")
    result = call("fit", tmp_path / "t", "--model", tmp_path / "m.cw", "--quiet")
    assert (
        result.exit_code == 0
        and "every label is 'O', so there is nothing to learn" in result.stderr
    )


def test_report_without_a_model_suggests_the_model_option(tmp_path):
    (tmp_path / "t.conll").write_text("a O\n")
    told = bad("report", tmp_path / "t.conll", "--out", tmp_path / "r.html")
    assert "should begin with MARKOV or BAYES" in told and "use --model" in told
    (tmp_path / "m.uai").write_text("network garden {}\n")
    told = bad("report", tmp_path / "m.uai", "--out", tmp_path / "r.html")
    assert "looks like BIF" in told and "--model" not in told
