"""
Part-of-speech tagging
======================

The part of speech of a word depends on its neighbors: in *the fish*, *fish* is a noun; in *they
fish*, it is a verb. A :class:`~cliquewise.SequenceTagger` learns weights for words and for adjacent
tags, and returns probabilities.
"""

# %%
# Synthetic sentences from a small grammar. Some words are ambiguous.

import matplotlib.pyplot as plt
import numpy as np

import cliquewise as cw

WORDS = {
    "DET": "the a this every".split(),
    "ADJ": "old small light quiet green".split(),
    "NOUN": "fish dog watch light play boat".split(),
    "PRON": "they we you".split(),
    "VERB": "fish watch light play see like".split(),
    "ADV": "often slowly here".split(),
}
PATTERNS = [
    "DET NOUN VERB DET NOUN",
    "PRON VERB DET ADJ NOUN",
    "PRON VERB ADV",
    "DET ADJ NOUN VERB ADV",
    "PRON ADV VERB DET NOUN",
]
rng = np.random.default_rng(0)


def sentences(n):
    """Return random sentences and their tags."""
    tags = [PATTERNS[i].split() for i in rng.integers(len(PATTERNS), size=n)]
    return [[str(rng.choice(WORDS[t])) for t in y] for y in tags], tags


words, y = sentences(300)
new_words, new_y = sentences(100)

# %%
# A token is a list of strings. The only feature is the word itself, so only the neighboring tags
# can resolve ambiguous words.


def features(words):
    """Return one list of strings per word."""
    return [[f"word={w}"] for w in words]


X, new_X = [features(s) for s in words], [features(s) for s in new_words]
tagger = cw.SequenceTagger(C=1.0, random_state=0).fit(X, y)
alone = cw.MulticlassClassifier(C=1.0, random_state=0)
vocabulary = sorted({w for s in words for w in s})
rows = np.array([[w == v for v in vocabulary] for s in words for w in s], dtype=float)
alone.fit(rows, [t for tags in y for t in tags])

# %%
# Training ends with a certificate: no weights can have an objective below the dual value.

tagger.certificate_

# %%
# Modeling neighbors improves the accuracy on ambiguous words.

new_rows = np.array([[w == v for v in vocabulary] for s in new_words for w in s], dtype=float)
print(f"word by word: {alone.score(new_rows, [t for s in new_y for t in s]):.1%}")
print(f"as sequences: {tagger.score(new_X, new_y):.1%}")

# %%
# Left: the probabilities of all tags for the same word in two sentences. Right: the learned
# transition weights from one tag (row) to the next (column).

sentence = ["you", "play", "every", "play"]
chances = tagger.predict_marginals([features(sentence)])[0]

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.imshow(chances.T, cmap="Blues", vmin=0, vmax=1, aspect="auto")
left.set(xticks=range(len(sentence)), yticks=range(len(tagger.classes_)))
left.set_xticklabels(sentence)
left.set_yticklabels(tagger.classes_)
left.set_title("probability of each tag")
for t, row in enumerate(chances):
    for k, p in enumerate(row):
        if p > 0.005:
            left.text(t, k, f"{p:.0%}", ha="center", va="center", color="w" if p > 0.5 else "k")
cw.plot.transitions(tagger, ax=right)
right.set_title("weight of a transition")
plt.show()
