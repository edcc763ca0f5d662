"""Shuffled sums without bits: samples what the analyzer would compute, for simulation.

Per label the shuffled bits are determined by their number of ones, which is the sum of all rounded values
plus Bin(n b, p). Drawing that number directly gives the same distribution as the three roles, at the cost
of one pass over the rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tacit.errors import BatchTooSmall
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray

_CHUNK_VALUES: Final = 1 << 15
"""Contributions held at a time: they stay in the processor's cache."""


def sample_sum(protocol: SumProtocol, rows: FloatArray, rng: np.random.Generator) -> Aggregate:
    """What the three roles would release about these users; refuses a batch below ``min_users`` as they do.

    Formal guarantee: that of ``guarantee``, towards those who see only the result (docs/theory.md#domination-theorem).
    The caller sees the rows.
    """
    users = rows.shape[0]
    if users < protocol.min_users:
        raise BatchTooSmall(f"{users} rows, {protocol.min_users} are needed: wait for more")
    ones = rng.binomial(protocol.noise_trials(users), protocol.noise_probability, size=protocol.domain.size)
    ones = ones.astype(np.int64)
    chunk = max(1, _CHUNK_VALUES // protocol.domain.size)
    for start in range(0, users, chunk):
        ones += protocol.rounded(protocol.domain.embed(rows[start : start + chunk]), rng).sum(axis=0)
    return Aggregate(protocol, protocol.debiased(ones, users), users)
