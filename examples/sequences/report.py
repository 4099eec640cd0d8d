"""
Find names in text and write a report
=====================================

Find people and places in sentences. Labels such as ``B-PER`` mark spans of words. The tagger
predicts the spans with their probabilities and writes a report, which is one self-contained HTML
file.
"""

# %%
# Synthetic sentences. Some names are both people and places, so *Jackson won* is ambiguous.

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
    """Return rows with one column, and labels."""
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
# A template extracts features from the columns of a token (here only the word) and its neighbors.

tagger = cw.SequenceTagger(C=1.0, template="columns", random_state=0).fit(X, y)
tagger.show(new_X[:4])

# %%
# Precision, recall and F1 by type. A span counts as correct if its first word, last word and type
# are correct.

cw.metrics.span_scores(new_y, tagger.predict(new_X))

# %%
# Each span has a probability. If the model is calibrated, about 80 % of the spans with a
# probability of 80 % are correct.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
cw.plot.calibration(tagger, new_X, new_y, spans=True, n_bins=6, ax=left)
cw.plot.confusion(new_y, tagger.predict(new_X), ax=right)
plt.show()

# %%
# Write the report: the certificate, scores, confusions, calibration, and every sentence with the
# reasons for its tags. ``live=True`` adds an input field to tag your own sentences.

page = Path(tempfile.mkdtemp()) / "report.html"
tagger.report(new_X, new_y, page, title="People and places", live=True)
print(f"{page.stat().st_size / 1000:.0f} kB")


class Frame:
    """Show the report within this page."""

    def _repr_html_(self):
        text = html.escape(page.read_text(encoding="utf-8"))
        style = "width:100%;height:42rem;border:1px solid rgba(128,128,128,.4);border-radius:.4rem"
        return f'<iframe title="the report" style="{style}" srcdoc="{text}"></iframe>'


Frame()
