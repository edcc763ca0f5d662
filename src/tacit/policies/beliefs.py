"""What a policy believes of theta, and what follows for an arm: its score, how uncertain that is, its mean reward.

Beliefs of private policies are made of releases.  What follows from them for somebody's arms concerns nobody else.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tacit._compile import entry, inlined_kernel, kernel, resolved_by_type
from tacit.glm.links import LinkForm, derivative, mean
from tacit.linalg.blocks import Blocks, compact_dot, compact_quadratic
from tacit.linalg.solve import dot, four_dots, quadratic_form
from tacit.typing import FloatArray


class PointBelief(NamedTuple):
    """An estimate alone, for arms of d numbers."""

    theta: FloatArray


class GaussianBelief(NamedTuple):
    """An estimate and its covariance."""

    theta: FloatArray
    covariance: FloatArray


class BlockBelief(NamedTuple):
    """The same for compact rows: a covariance for each block, as squares one after another."""

    theta: FloatArray
    squares: FloatArray
    blocks: Blocks


AnyBelief = PointBelief | GaussianBelief | BlockBelief


@kernel
def _dense_score(belief: PointBelief | GaussianBelief, x: FloatArray) -> float:
    return dot(x, belief.theta)


@kernel
def _compact_score(belief: BlockBelief, x: FloatArray) -> float:
    return compact_dot(x, belief.theta)


@kernel
def _four_dense_scores(
    belief: PointBelief | GaussianBelief, arms: FloatArray, start: int
) -> tuple[float, float, float, float]:
    return four_dots(arms, start, belief.theta)


@kernel
def _four_compact_scores(belief: BlockBelief, arms: FloatArray, start: int) -> tuple[float, float, float, float]:
    last = arms.shape[0] - 1
    return (
        compact_dot(arms[start], belief.theta),
        compact_dot(arms[min(start + 1, last)], belief.theta),
        compact_dot(arms[min(start + 2, last)], belief.theta),
        compact_dot(arms[min(start + 3, last)], belief.theta),
    )


@kernel
def _unknown_spread(belief: PointBelief, x: FloatArray) -> float:
    return math.nan


@kernel
def _dense_spread(belief: GaussianBelief, x: FloatArray) -> float:
    return math.sqrt(max(0.0, quadratic_form(belief.covariance, x)))


@kernel
def _compact_spread(belief: BlockBelief, x: FloatArray) -> float:
    return math.sqrt(max(0.0, compact_quadratic(belief.blocks, belief.squares, x)))


_SCORES: dict[type, Any] = {PointBelief: _dense_score, GaussianBelief: _dense_score, BlockBelief: _compact_score}
_FOUR_SCORES: dict[type, Any] = {
    PointBelief: _four_dense_scores,
    GaussianBelief: _four_dense_scores,
    BlockBelief: _four_compact_scores,
}
_SPREADS: dict[type, Any] = {PointBelief: _unknown_spread, GaussianBelief: _dense_spread, BlockBelief: _compact_spread}


def score(belief: AnyBelief, x: FloatArray) -> float:
    """<x, theta>."""
    return float(_SCORES[type(belief)](belief, x))


def four_scores(belief: AnyBelief, arms: FloatArray, start: int) -> tuple[float, float, float, float]:
    """Those of the four arms from ``start`` on; where there are fewer, the last one stands for those missing."""
    found: tuple[float, float, float, float] = _FOUR_SCORES[type(belief)](belief, arms, start)
    return found


def spread(belief: AnyBelief, x: FloatArray) -> float:
    """Standard deviation of the score; NaN where it is not known."""
    return float(_SPREADS[type(belief)](belief, x))


def _score_by_type(belief: Any, x: Any) -> Any:
    return _SCORES[belief.instance_class]


def _four_scores_by_type(belief: Any, arms: Any, start: Any) -> Any:
    return _FOUR_SCORES[belief.instance_class]


def _spread_by_type(belief: Any, x: Any) -> Any:
    return _SPREADS[belief.instance_class]


resolved_by_type(score, _score_by_type)
resolved_by_type(four_scores, _four_scores_by_type)
resolved_by_type(spread, _spread_by_type)


@entry
def predicted(link: LinkForm, belief: AnyBelief, x: FloatArray) -> tuple[float, float]:
    """Mean reward of an arm, and its standard deviation to first order: mu'(z) times that of the score."""
    z = score(belief, x)
    return mean(link, z), derivative(link, z) * spread(belief, x)


def marginal_sds(belief: AnyBelief) -> FloatArray:
    """Standard deviation of every coordinate of theta; NaN where it is not known."""
    if isinstance(belief, PointBelief):
        return np.full(belief.theta.size, math.nan)
    if isinstance(belief, GaussianBelief):
        return np.asarray(np.sqrt(np.maximum(np.diagonal(belief.covariance), 0.0)))
    blocks, numbers = belief.blocks, np.arange(belief.theta.size)
    starts, sizes = blocks.starts[blocks.block], np.diff(blocks.starts)[blocks.block]
    places = blocks.corners[blocks.block] + (numbers - starts) * (sizes + 1)
    return np.asarray(np.sqrt(np.maximum(belief.squares[places], 0.0)))


@inlined_kernel
def most_promising(belief: AnyBelief, widest: float, contexts: FloatArray) -> int:
    """The arm of the largest score plus spread; no spread exceeds ``widest``, and arms that cannot win are left out.

    The covariance of such a belief has the width of the bonus in it.
    """
    first, highest = 0, -np.inf
    for start in range(0, contexts.shape[0], 4):
        k = start
        for value in four_scores(belief, contexts, start):
            if value > highest:
                first, highest = k, value
            k += 1
    arm, best = first, highest + spread(belief, contexts[first])
    for start in range(0, contexts.shape[0], 4):
        k = start
        for value in four_scores(belief, contexts, start):
            if k < contexts.shape[0] and k != first and not value + widest < best:
                promise = value + spread(belief, contexts[k])
                if promise > best or (promise == best and k < arm):
                    arm, best = k, promise
            k += 1
    return arm
