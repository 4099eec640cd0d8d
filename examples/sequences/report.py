"""
Names in text, and a report to look at
======================================

People and places in sentences: labels such as ``B-PER`` stand for spans of words. The tagger finds
them, says how probable each is, and writes a report: one HTML file that needs no network.
"""

# %%
# Sentences, made here. Some names are people as well as places, and who *Jackson won* is about
# cannot be known.

import html
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import cliquewise as cw

FIRST = "Anna Paul Florence Jackson Sydney Paris Austin Chelsea Ivan Nora".split()
LAST = "Smith Lincoln Washington Houston Berg Dallas".split()
PLACES = [
    "New York",
    "Lake Berg",
    *"Rome Florence Houston Lincoln Sydney Jackson Paris Austin".split(),
]
PATTERNS = [
    "{person} lives in {place} .",
    "{person} and {person} moved from {place} to {place} .",
    "In {place} it rains , says {person} .",
    "{place} is far from {place} .",
    "{person} met {person} .",
    "{place} won .",
    "{person} won .",
    "They saw {place} .",
    "They saw {person} and {place} .",
]
rng = np.random.default_rng(1)


def sentence():
    """Rows of one column, and labels."""
    rows, labels = [], []
    for piece in rng.choice(PATTERNS).split():
        kind = piece.strip("{}")
        if kind == piece:
            words, tags = [piece], ["O"]
        else:
            if kind == "place":
                name = str(rng.choice(PLACES))
            else:
                name = " ".join(
                    [rng.choice(FIRST), rng.choice(LAST)][: 1 + int(rng.random() < 0.5)]
                )
            words = name.split()
            tag = "PER" if kind == "person" else "LOC"
            tags = [f"B-{tag}"] + [f"I-{tag}"] * (len(words) - 1)
        rows += [[w] for w in words]
        labels += tags
    return rows, labels


X, y = zip(*(sentence() for _ in range(150)), strict=True)
new_X, new_y = zip(*(sentence() for _ in range(120)), strict=True)

# %%
# A template turns the columns of a token (here: the word) into features of it and its neighbors.

tagger = cw.SequenceTagger(C=1.0, template="columns", random_state=0).fit(X, y)
tagger.show(new_X[:4])

# %%
# The scores, by type of span. A span counts if its first word, its last word and its type are
# right.

cw.metrics.span_scores(new_y, tagger.predict(new_X))

# %%
# Each span has a probability: that exactly these words are one span of this type. If it says 80 %,
# about 80 % of such spans should be right.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
cw.plot.calibration(tagger, new_X, new_y, spans=True, n_bins=6, ax=left)
cw.plot.confusion(new_y, tagger.predict(new_X), ax=right)
plt.show()

# %%
# All of it on one page, with every sentence: what is proved, scores, confusions, calibration, and
# why a word has its tag. With ``live=True`` it has a place to type sentences of your own, too.

page = Path(tempfile.mkdtemp()) / "report.html"
tagger.report(new_X, new_y, page, title="People and places", live=True)
print(f"{page.stat().st_size / 1000:.0f} kB")


class Frame:
    """The file, inside this page."""

    def _repr_html_(self):
        text = html.escape(page.read_text(encoding="utf-8"))
        style = "width:100%;height:42rem;border:1px solid rgba(128,128,128,.4);border-radius:.4rem"
        return f'<iframe title="the report" style="{style}" srcdoc="{text}"></iframe>'


Frame()
