"""What the first `SequenceTagger` compiles, with the types of its arguments; see `ahead`."""

from __future__ import annotations

from numba import types

from cliquewise._kernels.chain.decode import tag
from cliquewise._kernels.chain.features import (
    Chains,
    feature_sizes,
    largest_weights,
)
from cliquewise._kernels.chain.gradient import losses
from cliquewise._kernels.chain.sdca import (
    Duals,
    entropies,
    epoch,
    infer_all,
    largest_scores,
    weights_of_duals,
    wrong_mass,
)
from cliquewise._kernels.chain.threads import Part

_INTEGERS, _SHORT = types.int64[::1], types.int32[::1]
_VECTOR, _MATRIX, _TABLES = types.float64[::1], types.float64[:, ::1], types.float64[:, :, ::1]
_MASK = types.boolean[:, ::1]
_CHAINS = types.NamedTuple(
    [_INTEGERS, _INTEGERS, _SHORT, _VECTOR, _SHORT, _VECTOR, _MASK,
     _INTEGERS, _SHORT, types.uint64[::1], types.int64, _MASK, _MASK, types.float64, _MATRIX],
    Chains,
)  # fmt: skip
_DUALS = types.NamedTuple(
    [_MATRIX, _TABLES, _MATRIX, _TABLES, _VECTOR, _VECTOR, _VECTOR, _INTEGERS], Duals
)
_PART = types.NamedTuple(
    [_INTEGERS, _INTEGERS, _MATRIX, _VECTOR, _INTEGERS, *[types.int64] * 4], Part
)
_NUMBER, _INDEX = types.float64, types.int64
_DENSE = (_VECTOR, _VECTOR, _MATRIX, _TABLES)  # values, weights, constants, transitions

#: The longest first. The next to need its parts comes last in the other process, from the end;
#: and what only a prediction needs comes when a fit has everything.
PLAN = [
    (epoch, (_CHAINS, _DUALS, _VECTOR, _NUMBER, _NUMBER, _INTEGERS, _VECTOR, _NUMBER, _PART)),
    (infer_all, (_CHAINS, _DUALS)),
    (losses, (_CHAINS, _VECTOR, _INDEX, _INDEX, _VECTOR)),
    (entropies, (_CHAINS, _DUALS, _VECTOR, _VECTOR)),
    (largest_scores, (_CHAINS, _DUALS, _VECTOR)),
    (largest_weights, (_CHAINS, _VECTOR, _VECTOR)),
    (feature_sizes, (_CHAINS, _VECTOR, _VECTOR, _INDEX, _INDEX, _MATRIX)),
    (wrong_mass, (_CHAINS, _MATRIX)),
    (weights_of_duals, (_CHAINS, _DUALS, _NUMBER, _VECTOR, _INDEX, _INDEX)),
    (tag, (_INTEGERS, _INTEGERS, _SHORT, *_DENSE, _INDEX, _INDEX, _INTEGERS)),
]
