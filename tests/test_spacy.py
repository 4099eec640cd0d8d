"""The component of spaCy's pipelines."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import cliquewise as cw
from cliquewise.errors import DataError, MissingDependencyError

SENTENCES = [
    ("Anna sees Rome .", "B-PER O B-LOC O"),
    ("New York sees Anna Smith .", "B-LOC I-LOC O B-PER I-PER O"),
    ("Rome is in Italy .", "B-LOC O O B-LOC O"),
    ("Smith is in New York .", "B-PER O O B-LOC I-LOC O"),
]


@pytest.fixture(scope="module")
def tagger():
    table = {"words": [x.split() for x, _ in SENTENCES], "tags": [y.split() for _, y in SENTENCES]}
    return cw.SequenceTagger(C=20, random_state=0).fit(table, "tags")


@pytest.fixture
def spacy():
    return pytest.importorskip("spacy", reason="spaCy is not installed")


def test_without_spacy_the_component_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy.language", None)
    monkeypatch.delitem(sys.modules, "cliquewise.spacy", raising=False)
    monkeypatch.delitem(vars(cw), "spacy", raising=False)
    with pytest.raises(MissingDependencyError, match=r"pip install 'cliquewise\[spacy\]'"):
        __import__("cliquewise.spacy")


def test_entities_of_documents_have_the_probabilities_of_spans(spacy, tagger, tmp_path):
    import cliquewise.spacy  # noqa: F401, spaCy finds it by itself once cliquewise is installed

    tagger.save(tmp_path / "m.cw")
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("cliquewise", config={"model": str(tmp_path / "m.cw"), "all_above": 0.01})
    texts = ["Anna is in New York . Rome is in Italy .", "", "Smith sees Rome ."]
    docs = list(nlp.pipe(texts))
    found = [[(e.text, e.label_) for e in doc.ents] for doc in docs]
    assert found[0] == [("Anna", "PER"), ("New York", "LOC"), ("Rome", "LOC"), ("Italy", "LOC")]
    assert found[1] == [] and len(docs[1].spans["cliquewise"].attrs["scores"]) == 0
    group = docs[2].spans["cliquewise"]
    (expected,) = tagger.predict_spans(
        [[[w] for w in texts[2].split()]], candidates="all", threshold=0.01
    )
    assert [(s.start, s.end, s.label_) for s in group] == [s[:3] for s in expected]
    np.testing.assert_array_equal(group.attrs["scores"], [s.probability for s in expected])
    assert spacy.tokens.Doc(nlp.vocab).from_bytes(docs[2].to_bytes()).ents[0].label_ == "PER"


def test_pipelines_are_saved_with_their_model(spacy, tagger, tmp_path):
    from cliquewise.spacy import ChainEntities

    tagger.save(tmp_path / "m.cw")
    nlp = spacy.blank("en")
    nlp.add_pipe("cliquewise", config={"model": str(tmp_path / "m.cw"), "threshold": 0.1})
    nlp.to_disk(tmp_path / "pipeline")
    (tmp_path / "m.cw").unlink()
    again = spacy.load(tmp_path / "pipeline")
    assert [e.text for e in again("Anna sees New York .").ents] == ["Anna", "New York"]
    made = ChainEntities().from_bytes(again.get_pipe("cliquewise").to_bytes())
    assert [e.text for e in made(spacy.blank("en")("Rome is in Italy .")).ents] == ["Rome", "Italy"]


def test_models_trained_on_other_columns_are_rejected(spacy, tagger):
    from cliquewise.spacy import ChainEntities

    doc = spacy.blank("en")("Rome")
    with pytest.raises(DataError, match="no model"):
        ChainEntities()(doc)
    with pytest.raises(DataError, match=r"trained on 1 columns; columns=\['text', 'tag_'\]"):
        ChainEntities(tagger, columns=["text", "tag_"])(doc)
    lists = cw.SequenceTagger().fit([[["a"], ["b"]]], [["O", "B-X"]])
    with pytest.raises(DataError, match='template="columns"'):
        ChainEntities(lists)(doc)
