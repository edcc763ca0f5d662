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
    """Sample the sum that randomizer, shuffler and analyzer would release about these users, for simulation.

    Parameters
    ----------
    protocol : SumProtocol
        Parameters of the sum.
    rows : ndarray, shape (users, dim)
        Finite rows; scaled into the domain.
    rng : numpy.random.Generator
        Generator of rounding and noise.

    Returns
    -------
    Aggregate
        An estimate of the sum, of the distribution that `analyze` gives.

    Raises
    ------
    BatchTooSmall
        When there are fewer rows than ``protocol.min_users``.

    Formal guarantee
    ----------------
    That of ``guarantee``, towards those who see only the result (docs/theory.md#domination-theorem).
    The caller sees the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.shuffle import Ball, calibrate, sample_sum
    >>> protocol = calibrate(Ball(2), users=1000, epsilon=1.0, delta=1e-6)
    >>> result = sample_sum(protocol, np.full((1200, 2), 0.5), np.random.default_rng(0))
    >>> result.reports, bool(np.all(np.abs(result.values - 600.0) < 5.0 * result.noise_sd))
    (1200, True)
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
