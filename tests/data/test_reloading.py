"""Loading models again and again: memory is freed without the garbage collector."""

import gc
import resource
import weakref

import pytest

import cliquewise as cw

DICTS = [[{"w": "the"}, {"w": "dog", "n": 2.5}], [{"w": "a"}, {"w": "cat"}]]
ROWS = [[["the"], ["dog"]], [["a"], ["cat"]]]
TAGS = [["D", "N"], ["D", "N"]]


@pytest.fixture
def without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("predict_only", [False, True])
@pytest.mark.parametrize(("X", "template"), [(DICTS, None), (ROWS, "columns")])
def test_a_model_that_has_predicted_is_freed_at_once(
    tmp_path, without_collector, X, template, predict_only
):
    path = tmp_path / "m.cw"
    cw.SequenceTagger(template=template, random_state=0).fit(X, TAGS).save(path)
    gc.collect()
    model = cw.load(path, predict_only=predict_only)
    assert model.predict(X) == TAGS  # all at once, and one by one
    assert model.predict(X[:1]) == TAGS[:1]
    inner = model.encoder_.inner
    held = [weakref.ref(x) for x in (model, inner, inner.vocabulary)]
    del model, inner
    assert [ref() for ref in held] == [None] * 3


def test_memory_is_flat_over_many_reloads(tmp_path, without_collector):
    names = [[[f"attribute {i} {k}" for k in range(10)]] for i in range(3000)]
    labels = [[str(i % 5)] for i in range(3000)]
    path = tmp_path / "m.cw"
    tagger = cw.SequenceTagger(random_state=0, feature_pairs="seen", max_epochs=5, tol=1)
    tagger.fit(names, labels).save(path)

    def reload(count):
        for _ in range(count):
            cw.load(path, predict_only=True).predict(names[:300])
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = reload(10)
    after = reload(60)
    assert after - before < 10_000  # kB; a model takes 3,000 or more
