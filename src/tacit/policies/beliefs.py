"""What a policy believes of theta, and what follows for an arm: its score, how uncertain that is, its mean reward.

Beliefs of private policies are made of releases.  What follows from them for a user's arms concerns no other user.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from tacit.glm.links import Link
from tacit.linalg.blocks import Blocks, compact_quadratics, compact_scores
from tacit.typing import FloatArray, IntArray


class PointBelief(NamedTuple):
    """An estimate alone, for arms of d numbers."""

    theta: FloatArray

    def scores(self, rows: FloatArray) -> FloatArray:
        """<x, theta> of each row, shape (M,)."""
        scores: FloatArray = rows.dot(self.theta)
        return scores

    def variances(self, rows: FloatArray) -> FloatArray:
        """Variance of each score; NaN, since it is not known."""
        return np.full(len(rows), math.nan)

    def variance_at(self, row: FloatArray) -> float:
        """Variance of the score of one row; NaN, since it is not known."""
        return math.nan

    def marginal_sds(self) -> FloatArray:
        """Standard deviation of every coordinate of theta; NaN, since it is not known."""
        return np.full(self.theta.size, math.nan)


@cache
def _ones(size: int) -> FloatArray:
    return np.ones(size)


def quadratics(rows: FloatArray, matrix: FloatArray) -> FloatArray:
    """x' M x of each row x, shape (M,)."""
    products = rows.dot(matrix)
    products *= rows
    squares: FloatArray = products.dot(_ones(len(matrix)))  # faster than many short inner products
    return squares


class GaussianBelief(NamedTuple):
    """An estimate and its covariance."""

    theta: FloatArray
    covariance: FloatArray

    def scores(self, rows: FloatArray) -> FloatArray:
        """<x, theta> of each row, shape (M,)."""
        scores: FloatArray = rows.dot(self.theta)
        return scores

    def variances(self, rows: FloatArray) -> FloatArray:
        """Variance of each score."""
        return quadratics(rows, self.covariance)

    def variance_at(self, row: FloatArray) -> float:
        """Variance of the score of one row."""
        return float(row.dot(self.covariance).dot(row))

    def marginal_sds(self) -> FloatArray:
        """Standard deviation of every coordinate of theta."""
        return np.asarray(np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0)))


class BlockBelief(NamedTuple):
    """An estimate and a covariance for each block of it, as squares one after another; rows are compact."""

    theta: FloatArray
    squares: FloatArray
    blocks: Blocks

    def scores(self, rows: FloatArray) -> FloatArray:
        """<x, theta> of each compact row, shape (M,)."""
        return compact_scores(rows, self.theta)

    def variances(self, rows: FloatArray) -> FloatArray:
        """Variance of each score."""
        return compact_quadratics(self.blocks, self.squares, rows)

    def variance_at(self, row: FloatArray) -> float:
        """Variance of the score of one compact row."""
        return self.variances(row[np.newaxis]).item()

    def marginal_sds(self) -> FloatArray:
        """Standard deviation of every coordinate of theta."""
        diagonal = self.squares[self.blocks.lines + self.blocks.local]
        return np.asarray(np.sqrt(np.maximum(diagonal, 0.0)))


_ZERO = np.zeros(())
"""An array without axes, which NumPy need not make of a number first."""
AnyBelief = PointBelief | GaussianBelief | BlockBelief
Predictions = tuple[Sequence[float | None], Sequence[float | None]]
"""Mean rewards and their standard deviations, None where they are not known."""


def prediction(
    link: Link, belief: AnyBelief | None, row: FloatArray, score: float | None
) -> tuple[float | None, float | None]:
    """Mean reward and standard deviation of one arm in the form that steps take (`predictions`).

    ``score`` is that of the row where it is known already.
    """
    if belief is None:
        return None, None
    z = belief.scores(row[np.newaxis]).item() if score is None else score
    variance = belief.variance_at(row)
    spread = math.sqrt(variance) if variance > 0.0 else abs(0.0 * variance)
    return link.mean_at(z), None if spread != spread else link.derivative_at(z) * spread


def predictions(link: Link, belief: AnyBelief | None, rows: FloatArray) -> Predictions:
    """Mean reward and standard deviation of M arms in the form that steps take, shape (M, row size).

    The standard deviation is to first order: mu'(z) times that of the score.
    """
    if belief is None:
        return [None] * len(rows), [None] * len(rows)
    scores = belief.scores(rows)
    sds = link.derivative(scores) * np.sqrt(np.maximum(belief.variances(rows), 0.0))
    return link.mean(scores).tolist(), [None if sd != sd else sd for sd in sds.tolist()]


def most_promising(scores: FloatArray, variances: FloatArray, users: int) -> IntArray:
    """Arm of the largest score plus spread for each of N users, shape (N,).

    ``scores`` are those of all arms of the first user, then of the second, and so on.  ``variances``, which have the
    squared width of the bonus in them, are overwritten.
    """
    promise = np.sqrt(np.maximum(variances, _ZERO, out=variances), out=variances)
    promise += scores
    arms: IntArray = promise.reshape(users, -1).argmax(1)
    return arms
