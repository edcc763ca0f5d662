"""The buffered Toeplitz factorization: what it keeps from leaf to leaf, and how it releases the next one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tacit.errors import InvalidInput
from tacit.privacy.streaming import Published, follow_plain_mean
from tacit.typing import Count, FloatArray, Scalar, Secret, scalar

if TYPE_CHECKING:
    from tacit.privacy.geometric import PublicMean


TABLE: Final = """
 4   -4.228650  -1.987046  -0.867485  -0.021489   0.781916    -1.885620  -1.972076  -2.179093  -2.629355  -3.736874
 6   -5.115454  -2.825632  -1.591566  -0.560892   0.464079    -2.312849  -2.239554  -2.116497  -2.140182  -2.874785
 8   -6.240974  -3.875444  -2.456001  -1.161412   0.139372    -2.862475  -2.633993  -2.202631  -1.868634  -2.242400
10   -7.398993  -4.926766  -3.293250  -1.729552  -0.156750    -3.428148  -3.044519  -2.384973  -1.786569  -1.833156
12   -8.610874  -5.998158  -4.116653  -2.280850  -0.438738    -4.019165  -3.460015  -2.613766  -1.806384  -1.555321
14   -9.864436  -7.101411  -4.957218  -2.842088  -0.723031    -4.631410  -3.899333  -2.882549  -1.890266  -1.359628
16  -11.130536  -8.208504  -5.796535  -3.401986  -1.005061    -5.249461  -4.349503  -3.174486  -2.015384  -1.230028
18  -12.395669  -9.304450  -6.624157  -3.953888  -1.282191    -5.865665  -4.802714  -3.478845  -2.166019  -1.151357
20  -13.652459 -10.380142  -7.434208  -4.493983  -1.552918    -6.475303  -5.254395  -3.789116  -2.332114  -1.111180
24  -16.134545 -12.454744  -8.992799  -5.532983  -2.072975    -7.667878  -6.143879  -4.413490  -2.688243  -1.110260
28  -18.620076 -14.479296 -10.512139  -6.545857  -2.579600    -8.854565  -7.034850  -5.050545  -3.069057  -1.178825
32  -21.141021 -16.517916 -12.041057  -7.565643  -3.090456   -10.065791  -7.953670  -5.714800  -3.477736  -1.296166
"""
"""Optimised coefficients by ``python workloads/toeplitz_table.py``.

A line holds log2(horizon), then log(-log(decay)) and then log(weight) of the buffers.  These logarithms are close to
linear in log2(horizon), so that horizons in between are interpolated.  Privacy never rests on the figures: the
sensitivity is computed from the coefficients in use.
"""
_LINES: Final = np.array([[float(text) for text in line.split()] for line in TABLE.strip().splitlines()])


def coefficients(horizon: int) -> tuple[FloatArray, FloatArray]:
    """Decays and weights of the buffers for ``horizon`` leaves."""
    grid, optima = _LINES[:, 0], _LINES[:, 1:]
    position = max(float(grid[0]), math.log2(horizon))
    if position > grid[-1]:
        raise InvalidInput(f"horizon must be at most 2**{int(grid[-1])}, not {horizon}")
    rate, log_weight = np.split(np.array([np.interp(position, grid, column) for column in optima.T]), 2)
    return np.exp(-np.exp(rate)), np.exp(log_weight)


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
