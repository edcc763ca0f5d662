"""The analyzer: counts shuffled bits and takes off what noise and shift add on average.

It sees nothing but a multiset of bits per label, that is one number per label; all it computes from them is
post-processing of what the shuffler released, and may be published.
"""

from __future__ import annotations

import numpy as np

from tacit.errors import BatchTooSmall, InvalidInput
from tacit.shuffle.messages import Aggregate, ShuffledBits
from tacit.shuffle.parameters import SumProtocol


def analyze(protocol: SumProtocol, shuffled: ShuffledBits) -> Aggregate:
    """Return an unbiased estimate of the sum over the reports that arrived.

    Debiased with their number, not with the number of users asked: a report that never came brought neither a
    contribution nor noise.

    Parameters
    ----------
    protocol : SumProtocol
        Parameters that the reports were made under.
    shuffled : ShuffledBits
        What the shuffler released.

    Returns
    -------
    Aggregate
        The estimate and the number of reports.

    Raises
    ------
    InvalidInput
        When the bits were made under other parameters, or do not have the lengths of their reports.
    BatchTooSmall
        When there are fewer reports than ``protocol.min_users``.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.shuffle import Ball, Shuffler, analyze, calibrate, randomize
    >>> rng = np.random.default_rng(0)
    >>> protocol = calibrate(Ball(2), users=1000, epsilon=1.0, delta=1e-6)
    >>> shuffler = Shuffler(protocol)
    >>> shuffler.collect(randomize(protocol, np.full((1200, 2), 0.5), rng))
    >>> result = analyze(protocol, shuffler.release(rng))
    >>> result.reports, bool(np.all(np.abs(result.decoded() - 600.0) < 5.0 * result.noise_sd))
    (1200, True)
    """
    _check(protocol, shuffled)
    ones = np.array([int(np.sum(np.bitwise_count(bits), dtype=np.int64)) for bits in shuffled.bits])
    return Aggregate(protocol, protocol.debiased(ones, shuffled.reports), shuffled.reports)


def _check(protocol: SumProtocol, shuffled: ShuffledBits) -> None:
    """Refuse bits of another protocol, and sizes that contradict the number of reports."""
    if shuffled.digest != protocol.digest:
        raise InvalidInput("these bits were made under other parameters: use the protocol of their batch")
    if shuffled.reports < protocol.min_users:
        raise BatchTooSmall(f"{shuffled.reports} reports, {protocol.min_users} are needed")
    expected = tuple(int(width) * shuffled.reports for width in protocol.widths)
    sizes = tuple((length + 7) // 8 for length in expected)
    if shuffled.lengths != expected or tuple(bits.size for bits in shuffled.bits) != sizes:
        raise InvalidInput(f"the bits of {shuffled.reports} reports must have lengths {expected}")
