"""The same release without bits: samples what the analyzer would compute, for simulation.

Per label the shuffled bits are determined by their number of ones, which is the sum of all rounded values
plus Bin(n b, p). Drawing that number directly gives the same distribution as the three roles, at the cost
of one pass over the rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tacit._compile import entry
from tacit.errors import BatchTooSmall
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray, IntArray

_CHUNK_VALUES: Final = 1 << 18
"""Contributions held at a time: they stay in the processor's cache."""


def sample_sum(protocol: SumProtocol, rows: FloatArray, rng: np.random.Generator) -> Aggregate:
    """What the three roles would release about these users; refuses a batch below ``min_users`` as they do.

    Formal guarantee: that of ``guarantee``, for whoever sees the result only (docs/theory.md#domination-theorem).
    Whoever runs it sees the rows.
    """
    users = rows.shape[0]
    if users < protocol.min_users:
        raise BatchTooSmall(f"{users} rows, {protocol.min_users} are needed: wait for more")
    ones = rng.binomial(protocol.noise_trials(users), protocol.noise_probability, size=protocol.domain.size)
    ones = ones.astype(np.int64)
    chunk = max(1, _CHUNK_VALUES // protocol.domain.size)
    for start in range(0, users, chunk):
        values = protocol.domain.embed(rows[start : start + chunk])
        uniforms = rng.random(values.shape)
        _add_rounded(values, uniforms, protocol.lower, protocol.step, protocol.levels, ones)
    return Aggregate(protocol, protocol.debiased(ones, users), users)


@entry
def _add_rounded(
    values: FloatArray, uniforms: FloatArray, lower: FloatArray, step: float, levels: IntArray, ones: IntArray
) -> None:
    for i in range(values.shape[0]):
        for k in range(values.shape[1]):
            scaled = min(max((values[i, k] - lower[k]) / step, 0.0), float(levels[k]))
            ones[k] += min(int(np.floor(scaled + uniforms[i, k])), levels[k])
