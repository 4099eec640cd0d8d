"""
Read noisy handwriting
======================

A noisy word is hard to read letter by letter. Its neighbors help: *q* is followed by *u*. We render
letters with a font, add noise, and compare independent letters with whole sequences.
"""

# %%
# Render words with 12 by 10 gray pixels per letter, shifted, blurred and with noise.

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy.ndimage import gaussian_filter, shift

import cliquewise as cw

WORDS = """certificate quality bound proof label graph matching sequence structure quiet factor
marginal margin training weight message oracle quick dual primal smooth entropy""".split()
LETTERS = sorted(set("".join(WORDS)))
FONT = ImageFont.truetype(f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans.ttf", 11)
rng = np.random.default_rng(0)


def clean(letter):
    """Return the image of a letter."""
    image = Image.new("L", (10, 12))
    ImageDraw.Draw(image).text((5, 9), letter, fill=255, font=FONT, anchor="ms")
    return np.asarray(image) / 255


SHAPES = {letter: clean(letter) for letter in LETTERS}


def smudged(word):
    """Return one noisy image per letter."""
    pictures = [gaussian_filter(shift(SHAPES[c], rng.normal(0, 0.5, 2)), 0.5) for c in word]
    return np.array(pictures) + 0.25 * rng.normal(size=(len(word), 12, 10))


words = [str(w) for w in rng.choice(WORDS, 400)]
pictures = [smudged(w) for w in words]
X, y = [p.reshape(len(p), -1) for p in pictures], [list(w) for w in words]
train, test = slice(0, 250), slice(250, None)

# %%
# Both models use the same images, loss and penalty. Only one of them has transition weights.

alone = cw.MulticlassClassifier(C=0.3, random_state=0)
alone.fit(np.concatenate(X[train]), np.concatenate(y[train]))
chain = cw.SequenceTagger(C=0.3, random_state=0).fit(X[train], y[train])
by_letter = [list(alone.predict(x)) for x in X[test]]
by_word = chain.predict(X[test])
for name, found in (("letter by letter", by_letter), ("as sequences", by_word)):
    letters = cw.metrics.token_accuracy(y[test], found)
    whole = cw.metrics.exact_match_accuracy(y[test], found)
    print(f"{name:17} letters {letters:.1%}   whole words {whole:.1%}")

# %%
# Words that only the chain reads correctly. Errors of the other model are marked.

truth = y[test]
shown = [i for i, gold in enumerate(truth) if by_word[i] == gold and by_letter[i] != gold]
shown = sorted(shown, key=lambda i: np.mean(np.array(by_letter[i]) != truth[i]))
shown = list({"".join(truth[i]): i for i in shown}.values())[-6:]  # each word once
longest = max(len(truth[i]) for i in shown)
figure, axes = plt.subplots(3, 2, figsize=(10, 5), layout="constrained")
for axis, i in zip(axes.flat, shown):
    axis.imshow(-np.concatenate(pictures[250 + i], axis=1), cmap="gray")
    for t, (letter, sequence, gold) in enumerate(zip(by_letter[i], by_word[i], truth[i])):
        color, weight = ("0.5", "normal") if letter == gold else ("#d55e00", "bold")
        axis.text(10 * t + 4.5, 15.5, letter, ha="center", color=color, weight=weight)
        axis.text(10 * t + 4.5, 20, sequence, ha="center", color="#0072b2", weight="bold")
    axis.text(-2, 15.5, "by letter", ha="right", color="0.5")
    axis.text(-2, 20, "by word", ha="right", color="#0072b2")
    axis.set(xlim=(-17, 10 * longest), ylim=(20.5, -0.5))
for axis in axes.flat:
    axis.axis("off")
plt.show()
