"""
Query a Bayesian network
========================

Why is the patient short of breath? The *Asia* network of Lauritzen and Spiegelhalter (1988) relates
diseases, risk factors and symptoms. We compute posterior probabilities given what the doctor
observed.
"""

# %%
# Parents come first. Variables and states have names, and rows must sum to one.

import matplotlib.pyplot as plt
import numpy as np

import cliquewise as cw

no_yes = ["no", "yes"]


def chance(*yes):
    """Return rows (no, yes), one for each state of the parents."""
    table = np.stack([1 - np.array(yes), np.array(yes)], axis=-1)
    return table.reshape((2,) * (len(yes).bit_length() - 1) + (2,))


network = cw.FactorGraph.from_cpts(
    {
        "Asia": chance(0.01),
        "Smoking": chance(0.5),
        "Tuberculosis": (["Asia"], chance(0.01, 0.05)),
        "Cancer": (["Smoking"], chance(0.01, 0.1)),
        "Bronchitis": (["Smoking"], chance(0.3, 0.6)),
        "Either": (["Tuberculosis", "Cancer"], chance(0.0, 1.0, 1.0, 1.0)),
        "X-ray": (["Either"], chance(0.05, 0.98)),
        "Dyspnea": (["Either", "Bronchitis"], chance(0.1, 0.8, 0.7, 0.9)),
    },
    states=dict.fromkeys(
        ["Asia", "Smoking", "Tuberculosis", "Cancer", "Bronchitis", "Either", "X-ray", "Dyspnea"],
        no_yes,
    ),
)

# %%
# Each variable is a bar, divided by the probabilities of its states. A thick frame marks evidence.

figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
cw.plot.graph(network, ax=axes[0]).set_title("nothing known")
cw.plot.graph(network.condition({"Dyspnea": "yes"}), ax=axes[1]).set_title("short of breath")
plt.show()

# %%
# A joint query returns a table.

print(network.query(["Cancer", "Bronchitis"], {"Dyspnea": "yes"}))

# %%
# Evidence changes the probabilities: a smoker is short of breath; then the X-ray is positive; then
# we learn that he visited Asia.

stories = {
    "nothing known": {},
    "smokes, short of breath": {"Smoking": "yes", "Dyspnea": "yes"},
    "... and the X-ray shows something": {"Smoking": "yes", "Dyspnea": "yes", "X-ray": "yes"},
    "... and was in Asia": {"Smoking": "yes", "Dyspnea": "yes", "X-ray": "yes", "Asia": "yes"},
}
illnesses = ["Bronchitis", "Cancer", "Tuberculosis"]
figure, axis = plt.subplots(figsize=(8, 3.4), layout="constrained")
colors = ["0.75", "#56b4e9", "#0072b2", "#d55e00"]
for s, (told, evidence) in enumerate(stories.items()):
    answer = network.condition(evidence).marginals()
    chances = [answer.nodes[network.variable(name)][1] for name in illnesses]
    places = np.arange(3) + 0.2 * (s - 1.5)
    bars = axis.bar(places, chances, 0.19, label=told, color=colors[s])
    axis.bar_label(bars, [f"{p:.0%}" for p in chances], fontsize=8)
axis.set(xticks=range(3), ylabel="probability", ylim=(0, 1))
axis.set_xticklabels(illnesses)
axis.legend(loc="upper right", frameon=False)
plt.show()

# %%
# Evidence can be uncertain: two radiologists out of three see something.

unsure = network.condition({"X-ray": [1 / 3, 2 / 3]}).marginals()
print(f"cancer: {unsure.nodes[network.variable('Cancer')][1]:.1%}")

# %%
# The most probable joint state of the two diseases, summed over all other variables, is a marginal
# MAP query.

seen = network.condition({"X-ray": "yes", "Dyspnea": "yes"})
best = seen.map(over=["Cancer", "Tuberculosis"])
print({name: no_yes[best.labels[network.variable(name)]] for name in ("Cancer", "Tuberculosis")})
print("proved:", best.exact)
