"""Factorizations A = B C of the prefix-sum matrix, and what each of them costs.

A continual release publishes ``C x + noise``; multiplied by ``B`` it gives every prefix sum ``A x`` with noise
``B z``.  Two numbers describe a factorization: the largest column norm of ``C``, which is
the l2 sensitivity per unit of row bound (Denisov et al., arXiv 2202.08312, Theorem 2.1; for adaptive inputs and
rows that move docs/theory.md#adaptivity-with-moved-rows), and the row norms of ``B``, which are the standard
deviations of the prefixes per unit of noise.  Their product, times 1/mu, is the standard deviation of a prefix at
mu-GDP.

All entries of ``C`` are nonnegative in all factorizations.  Moving a contribution to another leaf then
costs no more than replacing it in place, which is what covers late rewards (docs/theory.md, "The clock").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

import numpy as np

from tacit._validate import integer_at_least
from tacit.errors import InvalidInput
from tacit.privacy.geometric import next_boundary
from tacit.privacy.toeplitz import coefficients
from tacit.typing import FloatArray, IntArray


class _WithoutBuffers:
    """A factorization whose noise is fresh at each leaf."""

    @property
    def decay(self) -> FloatArray:
        """Empty: there are no noise buffers."""
        return np.zeros(0)

    @property
    def weight(self) -> FloatArray:
        """Empty: there are no noise buffers."""
        return np.zeros(0)


@dataclass(frozen=True)
class BinaryTree(_WithoutBuffers):
    """The paper's binary-tree mechanism (Dwork et al. 2010, Chan et al. 2011), as a complete tree.

    A leaf lies in one node of each of ``ceil(log2 T) + 1`` levels, so a column of C has at most that many
    ones; prefix t is the sum of as many nodes as t has ones in binary.
    """

    name: ClassVar[str] = "tree"
    horizon: int
    """Number of leaves."""

    def __post_init__(self) -> None:
        integer_at_least("horizon", self.horizon, 1)

    @property
    def levels(self) -> int:
        """Levels of the tree, leaves included."""
        return (self.horizon - 1).bit_length() + 1

    @property
    def column_norm(self) -> float:
        """Largest column norm of C: l2 sensitivity per unit of row bound."""
        return math.sqrt(self.levels)

    def prefix_variance(self, leaves: IntArray) -> FloatArray:
        """Squared row norms of B: the variance of these prefixes per unit of noise variance."""
        return np.bitwise_count(np.asarray(leaves, dtype=np.uint64)).astype(np.float64)

    @property
    def worst_variance(self) -> float:
        """Largest prefix variance up to the horizon: that of the leaf number with the most ones in binary."""
        return float((self.horizon + 1).bit_length() - 1)


@dataclass(frozen=True)
class BufferedToeplitz:
    """Buffered linear Toeplitz factorization (BLT; McMahan et al., arXiv 2408.08868).

    ``C`` is Toeplitz with coefficients 1 and ``sum_j weight_j decay_j^(i-1)``, a sum of a few exponentials
    that stands in for the optimal square-root coefficients ``binom(2i, i) / 4^i``; ``B = A C^-1`` holds
    exactly for any coefficients, so that privacy does not rest on how good the stand-in is.  A release
    keeps one noise vector for each buffer, for any horizon.
    """

    name: ClassVar[str] = "toeplitz"
    horizon: int
    """Number of leaves."""

    def __post_init__(self) -> None:
        integer_at_least("horizon", self.horizon, 1)

    @cached_property
    def _coefficients(self) -> tuple[FloatArray, FloatArray]:
        return coefficients(self.horizon)

    @property
    def decay(self) -> FloatArray:
        """Factor by which each noise buffer fades from leaf to leaf."""
        return self._coefficients[0]

    @property
    def weight(self) -> FloatArray:
        """How much of each noise buffer the next leaf takes back."""
        return self._coefficients[1]

    @cached_property
    def column_norm(self) -> float:
        """Largest column norm of C: l2 sensitivity per unit of row bound."""
        return math.sqrt(column_norm_squared(self.decay, self.weight, self.horizon))

    def prefix_variance(self, leaves: IntArray) -> FloatArray:
        """Squared row norms of B: the variance of these prefixes per unit of noise variance."""
        if np.any(np.asarray(leaves) > self.horizon):
            raise InvalidInput(f"leaves must be at most the horizon {self.horizon}")
        squares = self._responses(int(np.max(leaves))) ** 2
        curve = np.concatenate([[0.0], np.cumsum(squares)])
        return np.asarray(curve[np.asarray(leaves)], dtype=np.float64)

    @cached_property
    def _step(self) -> FloatArray:
        """M: buffers and the response of a prefix to an impulse are a vector y with y_1 = 1 and y_{t+1} = M y_t."""
        size = self.decay.size
        step = np.zeros((size + 1, size + 1))
        step[:size, :size] = np.diag(self.decay)
        step[:, :size] -= self.weight
        step[size, size] = 1.0
        return step

    def _responses(self, leaves: int) -> FloatArray:
        """The last entries of y_1, ..., y_leaves: last lines of M^0, M^1, ... times every k-th y, k the square root."""
        size, block = self._step.shape[0], math.isqrt(leaves) + 1
        lines, states = np.zeros((block, size)), np.ones((block, size))
        lines[0, -1] = 1.0
        jump = np.linalg.matrix_power(self._step, block)
        for i in range(1, block):
            lines[i], states[i] = lines[i - 1] @ self._step, jump @ states[i - 1]
        return np.asarray((states @ lines.T).reshape(-1)[:leaves])

    @property
    def worst_variance(self) -> float:
        """Largest prefix variance up to the horizon, the last one, in as many steps as the horizon has binary digits.

        Responses are squared and added up in a corner of the sum of y_t y_t', which doubles by G_2k = G_k + M^k G_k
        (M^k)'.
        """
        first = np.ones_like(self._step)
        total, power = first, self._step
        for digit in f"{self.horizon:b}"[1:]:
            total, power = total + power @ total @ power.T, power @ power
            if digit == "1":
                total, power = first + self._step @ total @ self._step.T, power @ self._step
        return float(total[-1, -1])


@dataclass(frozen=True)
class Geometric(_WithoutBuffers):
    """Few leaves with integer weights and fresh noise (`tacit.privacy.geometric`): the same for every horizon.

    ``C`` has the entries ``b_k A_j``, whose columns have norm at most 1.  What is made of ``C x + z`` is the mean row,
    by least squares, times the number of decisions: unbiased where rows are alike, and not a prefix sum otherwise.
    """

    name: ClassVar[str] = "geometric"
    horizon: int
    """Number of decisions, for figures about it; the mechanism itself knows none."""
    column_norm: ClassVar[float] = 1.0
    """Largest column norm of C, by telescoping: l2 sensitivity per unit of row bound."""

    def __post_init__(self) -> None:
        integer_at_least("horizon", self.horizon, 1)

    @cached_property
    def boundaries(self) -> IntArray:
        """The decisions after which leaves close, up to the horizon."""
        found = [1]
        while (following := next_boundary(found[-1], 0, 0)) <= self.horizon:
            found.append(following)
        return np.array(found, dtype=np.int64)

    def prefix_variance(self, leaves: IntArray) -> FloatArray:
        """Variance of t h after these numbers of decisions, per unit of noise variance: t^2 / I(t), at the last leaf.

        y_k = s_k h + z_k with the row sums s_k of C, so that the information about h is I = sum s_k^2.
        """
        n = self.boundaries.astype(np.float64)
        following = np.append(n[1:], next_boundary(int(n[-1]), 0, 0))
        sums = np.cumsum(n * np.diff(n, prepend=0.0)) * np.sqrt(1.0 / n**2 - 1.0 / following**2)
        last = np.searchsorted(self.boundaries, np.asarray(leaves), side="right") - 1
        return np.asarray((n**2 / np.cumsum(sums**2))[last], dtype=np.float64)

    @property
    def worst_variance(self) -> float:
        """Largest prefix variance up to the horizon; the variance changes only where leaves close."""
        return float(np.max(self.prefix_variance(self.boundaries)))


def column_norm_squared(decay: FloatArray, weight: FloatArray, horizon: int) -> float:
    """``1 + sum_{i=1}^{T-1} c_i^2`` in closed form: the first column of C, which is the longest."""
    ratio = np.outer(decay, decay)
    geometric = -np.expm1((horizon - 1) * np.log(ratio)) / (1.0 - ratio)
    return float(1.0 + np.sum(np.outer(weight, weight) * geometric))


Factorization = BinaryTree | BufferedToeplitz | Geometric
FACTORIZATIONS: Final[dict[str, type[Factorization]]] = {
    kind.name: kind for kind in (Geometric, BufferedToeplitz, BinaryTree)
}


def make_factorization(name: str, horizon: int) -> Factorization:
    """The factorization called ``name`` over ``horizon`` leaves."""
    if name not in FACTORIZATIONS:
        raise InvalidInput(f"factorization must be one of {', '.join(FACTORIZATIONS)}, not {name!r}")
    return FACTORIZATIONS[name](horizon)


def worst_prefix_sd(factorization: Factorization) -> float:
    """Standard deviation of the worst prefix per unit of (row bound / mu)."""
    return factorization.column_norm * math.sqrt(factorization.worst_variance)
