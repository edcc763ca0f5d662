"""The buffered Toeplitz factorization: what it keeps from leaf to leaf, and how it releases the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tacit.privacy.streaming import Published, follow_plain_mean
from tacit.typing import Count, FloatArray, Scalar, Secret, scalar

if TYPE_CHECKING:
    from tacit.privacy.geometric import PublicMean


class NoiseBuffers(NamedTuple):
    """State of the buffered Toeplitz factorization: a line, or a number, for each buffer."""

    noise: Secret[FloatArray]
    """Noise of past leaves, part of which each further leaf takes back."""
    decay: FloatArray
    """Factor by which a buffer fades from leaf to leaf."""
    weight: FloatArray
    """How much of a buffer the next leaf takes back."""
    response: FloatArray
    """What a unit of noise in the epoch's first leaf has become: in each buffer, and at the end in the released sum."""
    variance_factor: Scalar
    """Variance of the released sum per unit of noise variance, of this epoch alone."""
    carried_variance: Scalar
    """Variance that earlier epochs brought."""

    def noise_scale(self, sd: float) -> float:
        """The standard deviation of z."""
        return sd

    def count_decisions(self, users: int) -> None:
        """Do nothing: leaves are counted."""

    def release(self, closed: Count, leaf: FloatArray, noise: FloatArray, sd: float, released: FloatArray) -> None:
        """Noise C^-1 z by the buffers' recursion; the raw leaf is added and forgotten."""
        step = noise - self.weight @ self.noise
        self.noise[:] = self.decay[:, np.newaxis] * self.noise + step
        closed[()] += 1
        released += leaf + step
        buffers, released_noise = slice(0, -1), -1
        unit = (1.0 if closed[()] == 1 else 0.0) - float(self.weight @ self.response[buffers])
        self.response[buffers] = self.decay * self.response[buffers] + unit
        self.response[released_noise] += unit
        self.variance_factor[()] += float(self.response[released_noise]) ** 2

    def variance(self, closed: int, sd: float) -> float:
        """Variance of the released sum."""
        return float(self.carried_variance[()] + self.variance_factor[()] * sd * sd)

    def restart(self, closed: int, sd: float, released: FloatArray, decay: FloatArray, weight: FloatArray) -> None:
        """Begin a new epoch with these coefficients; what was ``released`` stays."""
        self.carried_variance[()] = self.variance(closed, sd)
        self.decay[:], self.weight[:] = decay, weight
        self.response[:] = 0.0
        self.noise[:] = 0.0
        self.variance_factor[()] = 0.0

    def exact(self, closed: int, leaf: FloatArray, released: FloatArray) -> Published:
        """The next prefix sum without new noise, with what it takes back of earlier noise."""
        return np.asarray(released + (leaf - self.weight @ self.noise))

    def newest_release(self, closed: int, released: FloatArray) -> Published:
        """The prefix sum."""
        return released.copy()

    def overwrite(self, closed: int, published: Published, released: FloatArray) -> None:
        """Make ``published`` the prefix sum, to the bit."""
        released[:] = published

    @property
    def unevenness(self) -> float:
        """Every row counts once."""
        return 1.0

    @property
    def is_due(self) -> bool:
        """A leaf closes with each tick."""
        return True

    def follow_public(self, closed: int, released: int, public: PublicMean, row: FloatArray) -> None:
        """Update the mean of public rows, in which all count alike."""
        follow_plain_mean(released, public, row)

    def drop_secrets(self) -> None:
        """Empty the noise buffers."""
        self.noise[:] = 0.0


def empty_buffers(size: int, lines: int) -> NoiseBuffers:
    """Buffers for ``size`` numbers before their first epoch."""
    return NoiseBuffers(
        noise=np.zeros((lines, size)),
        decay=np.zeros(lines),
        weight=np.zeros(lines),
        response=np.zeros(lines + 1),
        variance_factor=scalar(),
        carried_variance=scalar(),
    )
