"""The binary tree: what it keeps from leaf to leaf, and how it releases the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tacit.privacy.streaming import Published, follow_plain_mean
from tacit.typing import Count, FloatArray, Scalar, Secret, scalar

if TYPE_CHECKING:
    from tacit.privacy.geometric import PublicMean

MAX_TREE_LEVELS = 40


class TreeNodes(NamedTuple):
    """State of the binary tree: a line for each level, in use where the number of closed leaves has a binary 1."""

    sums: Secret[FloatArray]
    """Exact sums of the nodes in use."""
    noisy: FloatArray
    """The nodes in use as they were released, each with noise of its own."""
    carried: FloatArray
    """What earlier epochs released."""
    carried_variance: Scalar
    """Variance of each entry of ``carried``."""

    @property
    def is_due(self) -> bool:
        """Every tick closes a leaf."""
        return True

    @property
    def unevenness(self) -> float:
        """All rows weigh alike."""
        return 1.0

    def count_decisions(self, users: int) -> None:
        """Do nothing: the number of closed leaves is the clock."""

    def release(self, closed: Count, leaf: FloatArray, noise: FloatArray, sd: float, released: FloatArray) -> None:
        """Binary counter of Chan et al. (2011): the node of level i covers the last 2^i leaves."""
        number = int(closed[()]) + 1
        level = completed_level(number)
        self.sums[level] = self.exact(number, leaf, released)
        closed[()] = number
        self.noisy[level] = self.sums[level] + noise
        self._add_up(number, released)

    def _add_up(self, closed: int, released: FloatArray) -> None:
        """Make ``released`` the prefix sum: what earlier epochs released, and the nodes in use."""
        released[:] = self.carried
        for level in range(closed.bit_length()):
            if (closed >> level) & 1:
                released += self.noisy[level]

    def variance(self, closed: int, sd: float) -> float:
        """Variance of the released sum: of a node for each binary 1 of ``closed``, and of what was carried over."""
        return float(self.carried_variance[()] + closed.bit_count() * sd * sd)

    def restart(self, closed: int, sd: float, released: FloatArray, decay: FloatArray, weight: FloatArray) -> None:
        """Begin a new epoch; what was ``released`` is carried over."""
        self.carried_variance[()] = self.variance(closed, sd)
        self.carried[:] = released
        self.sums[:] = 0.0
        self.noisy[:] = 0.0

    def noise_scale(self, sd: float) -> float:
        """The standard deviation of a node's noise."""
        return sd

    def follow_public(self, closed: int, released: int, public: PublicMean, row: FloatArray) -> None:
        """Update the plain mean of public rows."""
        follow_plain_mean(released, public, row)

    def exact(self, closed: int, leaf: FloatArray, released: FloatArray) -> Published:
        """The exact sum of the node that ``leaf`` completes."""
        return np.asarray(leaf + self.sums[: completed_level(closed)].sum(axis=0))

    def newest_release(self, closed: int, released: FloatArray) -> Published:
        """The node that the last leaf completed."""
        return np.array(self.noisy[completed_level(closed)])

    def overwrite(self, closed: int, published: Published, released: FloatArray) -> None:
        """Make ``published`` the node of leaf number ``closed``, to the bit."""
        self.noisy[completed_level(closed)] = published
        self._add_up(closed, released)

    def drop_secrets(self) -> None:
        """Empty the exact sums."""
        self.sums[:] = 0.0


def empty_tree(size: int) -> TreeNodes:
    """A tree for ``size`` numbers before its first epoch."""
    shape = (MAX_TREE_LEVELS, size)
    return TreeNodes(np.zeros(shape), np.zeros(shape), np.zeros(size), scalar())


def completed_level(closed: int) -> int:
    """Level of the node that leaf number ``closed`` completes: the place of its lowest binary 1."""
    return (closed & -closed).bit_length() - 1
