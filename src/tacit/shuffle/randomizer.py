"""The user's device: what leaves it is already rounded and noised, and carries nothing but labelled bits.

A device needs this file, the message types and the public parameters; it trusts the shuffler to shuffle, and
the other devices, in their majority, to add their share of noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from tacit.shuffle.messages import ID_BYTES, encode_reports
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import ByteArray, FloatArray, IntArray

_CHUNK_DRAWS: Final = 1 << 23
"""Random numbers held at a time: keeps a simulated fleet of devices within a few dozen megabytes."""


def randomize(
    protocol: SumProtocol, rows: FloatArray, rng: np.random.Generator, ids: ByteArray | None = None
) -> ByteArray:
    """Return the noisy reports of users, one line of bytes each.

    A device calls it with its one row and a cryptographic generator; a simulation with many.

    Parameters
    ----------
    protocol : SumProtocol
        Parameters of the sum.
    rows : ndarray, shape (users, dim)
        Finite rows; scaled into the domain.
    rng : numpy.random.Generator
        Generator of rounding, noise and ids.
    ids : ndarray of uint8, shape (users, 16), optional
        Id of each report; drawn from ``rng`` unless the deployment issues one-time tokens.

    Returns
    -------
    ndarray of uint8, shape (users, report_bytes(protocol))
        The reports.

    Formal guarantee
    ----------------
    A single report is barely private: it hides behind its own ``noise_bits`` coins.  The guarantee is
    that of the shuffled batch, see ``guarantee``: one user's row replaced, l2 sensitivity
    ``domain.sensitivity``, with at least ``min_users`` honest reports (docs/theory.md#domination-theorem).  It
    holds for any row, since rows are scaled into the domain first.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.shuffle import Ball, calibrate, randomize
    >>> protocol = calibrate(Ball(2), users=1000, epsilon=1.0, delta=1e-6)
    >>> randomize(protocol, np.array([[0.6, 0.8]]), np.random.default_rng(0)).shape
    (1, 32)
    """
    counts = ones_per_coordinate(protocol, rows, rng)
    if ids is None:
        ids = rng.integers(0, 256, size=(counts.shape[0], ID_BYTES), dtype=np.uint8)
    return encode_reports(protocol, ids, counts)


def ones_per_coordinate(protocol: SumProtocol, rows: FloatArray, rng: np.random.Generator) -> IntArray:
    """Rounded value plus noise of each coordinate (arXiv 2106.09805, Theorem 4.2)."""
    rounded = protocol.rounded(protocol.domain.embed(rows), rng)
    return rounded + noise_share(protocol, rounded.shape[0], rng)


def noise_share(protocol: SumProtocol, users: int, rng: np.random.Generator) -> IntArray:
    """Bin(b, p) for each user and coordinate, exact: each coin compares 16 random bits with p 2^16."""
    shape = (users, protocol.domain.size, protocol.noise_bits)
    coins = rng.integers(0, 1 << 16, size=shape, dtype=np.uint16) < protocol.noise_numerator
    return np.asarray(np.sum(coins, axis=2, dtype=np.int64), dtype=np.int64)


def randomize_in_chunks(protocol: SumProtocol, rows: FloatArray, rng: np.random.Generator) -> Iterator[ByteArray]:
    """Yield the reports of many users, a bounded number at a time.

    Parameters
    ----------
    protocol : SumProtocol
        Parameters of the sum.
    rows : ndarray, shape (users, dim)
        Finite rows; scaled into the domain.
    rng : numpy.random.Generator
        Generator of rounding, noise and ids.

    Yields
    ------
    ndarray of uint8
        Lines of reports, as `randomize` makes them.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.shuffle import Ball, Shuffler, calibrate, randomize_in_chunks
    >>> protocol = calibrate(Ball(2), users=1000, epsilon=1.0, delta=1e-6)
    >>> shuffler = Shuffler(protocol)
    >>> for reports in randomize_in_chunks(protocol, np.full((1200, 2), 0.5), np.random.default_rng(0)):
    ...     shuffler.collect(reports)
    >>> shuffler.admitted
    1200
    """
    chunk = max(1, _CHUNK_DRAWS // (protocol.domain.size * (protocol.noise_bits + 4)))
    for start in range(0, rows.shape[0], chunk):
        yield randomize(protocol, rows[start : start + chunk], rng)
