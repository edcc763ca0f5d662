"""The interface of the three ways of releasing a running sum: binary tree, noise buffers, geometric leaves.

A mechanism is a small state of arrays with the steps on it.  ``release`` brings ``released``, an estimate of the sum of
all rows so far, up to date; ``variance`` is the variance that privacy noise gives each of its entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

from tacit.typing import Count, FloatArray

if TYPE_CHECKING:
    from tacit.privacy.geometric import PublicMean

Published = npt.NDArray[Any]
"""Numbers that a leaf made public: floats, or whole numbers of steps."""


class Mechanism(Protocol):
    """What a factorization keeps from leaf to leaf; ``closed`` counts the leaves of the present epoch from 1."""

    @property
    def is_due(self) -> bool:
        """Whether the next tick closes the open leaf; a function of the clock."""
        ...

    @property
    def unevenness(self) -> float:
        """By how much rows' own variance counts for more than in a plain sum, since some weigh more than others."""
        ...

    def noise_scale(self, sd: float) -> float:
        """Scale of the noise that closing the open leaf takes: ``sd``, or a parameter in steps for whole numbers."""
        ...

    def count_decisions(self, users: int) -> None:
        """Move the clock on by ``users`` decisions."""
        ...

    def release(self, closed: Count, leaf: FloatArray, noise: FloatArray, sd: float, released: FloatArray) -> None:
        """Close a leaf: count it in ``closed``, and bring ``released`` up to date with it and its noise.

        In this order: take the leaf into raw sums, count it, then change what is public.  An interruption between any
        two statements may lose the leaf or its release, but none is ever released twice (docs/theory.md,
        "Interruptions").
        """
        ...

    def variance(self, closed: int, sd: float) -> float:
        """Variance of each entry of ``released`` after ``closed`` leaves: public, by the clock alone."""
        ...

    def follow_public(self, closed: int, released: int, public: PublicMean, row: FloatArray) -> None:
        """After release number ``released``: update the mean of public rows, weighted as ``release`` weighs users'."""
        ...

    def restart(self, closed: int, sd: float, released: FloatArray, decay: FloatArray, weight: FloatArray) -> None:
        """Begin a new epoch, of noise buffers with these coefficients; what was ``released`` is carried over."""
        ...

    def exact(self, closed: int, leaf: FloatArray, released: FloatArray) -> Published:
        """What `newest_release` would be if ``leaf`` were number ``closed`` and had no noise of its own.

        Tree: the exact sum of the node that the leaf completes.  Noise buffers: the next prefix sum, with what it takes
        back of earlier noise.  Geometric leaves: the weighted sum.
        """
        ...

    def newest_release(self, closed: int, released: FloatArray) -> Published:
        """What leaf number ``closed``, the last one, made public: its node, the weighted sum, or the prefix sum."""
        ...

    def overwrite(self, closed: int, published: Published, released: FloatArray) -> None:
        """Make ``published`` the `newest_release`, to the bit, where rounding may have made a difference."""
        ...

    def drop_secrets(self) -> None:
        """Empty what is secret of it; decisions whose rows are lost with it are no longer counted on."""
        ...


def follow_plain_mean(released: int, public: PublicMean, row: FloatArray) -> None:
    """Update the plain mean of public rows, of which ``row`` belongs to release number ``released``."""
    public.mean[:] += (row - public.mean) / released
