"""
Bound log Z of an Ising model
=============================

The partition function of a large grid cannot be computed exactly, but it can be bounded. This
example uses a grid that is small enough to compute the exact value, and compares certified bounds
as couplings grow from weak to strong.
"""

# %%
# An Ising model has binary variables on a grid, here with random fields and couplings. Strong
# couplings of both signs are the hard case.

import matplotlib.pyplot as plt
import numpy as np

import cliquewise as cw

rng = np.random.default_rng(0)
SIZE = 8
fields = rng.uniform(-0.5, 0.5, size=(SIZE, SIZE))
right, down = rng.uniform(-1, 1, size=(2, SIZE, SIZE))
SIGN = np.array([[1.0, -1.0], [-1.0, 1.0]])


def ising(strength):
    """Return the grid with scaled couplings."""
    number = np.arange(SIZE * SIZE).reshape(SIZE, SIZE)
    factors = [((int(i),), f * np.array([1.0, -1.0])) for i, f in zip(number.flat, fields.flat)]
    beside = zip(number[:, :-1].flat, number[:, 1:].flat, right[:, :-1].flat)
    below = zip(number[:-1].flat, number[1:].flat, down[:-1].flat)
    factors += [((int(a), int(b)), strength * c * SIGN) for a, b, c in (*beside, *below)]
    return cw.FactorGraph([2] * SIZE * SIZE, factors)


# %%
# Compare three methods that compute certified upper bounds on log Z with the exact value from a
# junction tree. ``barrier-fw`` makes one MAP call per step, and its bound is valid at every step.

strengths = np.linspace(0.25, 3, 6)
METHODS = {
    "trw-bp": {},
    "barrier-fw": {"gap": 0.1, "max_calls": 60},
    "mini-buckets": {"max_entries": 16},
}
above = {name: [] for name in METHODS}
errors = {name: [] for name in METHODS}
for strength in strengths:
    graph = ising(strength)
    exact = graph.marginals("junction-tree")
    truth = np.array([p[0] for p in exact.nodes])
    for name, options in METHODS.items():
        answer = graph.marginals(name, **options)
        assert answer.log_z_bounds[1] >= exact.log_z - 1e-9
        above[name].append(answer.log_z_bounds[1] - exact.log_z)
        errors[name].append(np.abs(np.array([p[0] for p in answer.nodes]) - truth).mean())

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
styles = zip(METHODS, ["o-", "s--", "^:"], ["#d55e00", "#0072b2", "#009e73"], strict=True)
for name, line, color in styles:
    axes[0].plot(strengths, np.maximum(above[name], 1e-3), line, color=color, label=name)
    axes[1].plot(strengths, np.maximum(errors[name], 1e-4), line, color=color, label=name)
axes[0].set(xlabel="strength of the couplings", ylabel="upper bound - ln Z", yscale="log")
axes[1].set(xlabel="strength of the couplings", ylabel="error of the marginals", yscale="log")
axes[0].legend()
plt.show()

# %%
# By default, ``auto`` compares the estimated costs of all methods. ``explain`` shows the
# comparison.

print(ising(1.0).explain("marginals"))

# %%
# A grid of 20 by 20 is too wide for exact marginals. With a limit of one second we get bounds.

wide = cw.builders.grid(rng.normal(size=(20, 20, 2)), SIGN, SIGN)
answer = wide.marginals(seconds=1.0)
low, high = answer.log_z_bounds
print(
    f"{low:.2f} <= ln Z <= {high:.2f}; certified: {answer.bounds_certified}; exact: {answer.exact}"
)
