"""State and steps of `stream-glm`.

One continual stream releases matrix and score of a linearised regression; the estimate is post-processing of it, made
anew while it still changes (`tacit.policies.stream.estimate`).  Nothing else is released.

Where some coordinates are never nonzero together, arms are compact rows (`tacit.linalg.blocks`), and entries of x x'
that are 0 for everybody are not released: they carry no noise, and cost nothing.  Dropping coordinates of a
contribution is a projection, so that the sensitivity bound of whole rows holds (docs/theory.md#structure).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit.estimation.linearised import blended_weights, length_shares
from tacit.linalg.ball import into_ball
from tacit.linalg.blocks import (
    BlockGroup,
    Blocks,
    add_compact_outers,
    add_compact_rows,
    check_compact,
    compact_quadratics,
    compact_scores,
    packed_directions,
)
from tacit.policies.admission import remember_rows
from tacit.policies.beliefs import most_promising, quadratics
from tacit.policies.steps import Steps
from tacit.policies.stream.estimate import StreamConstants, solve_blocks
from tacit.privacy.continual import Stream, contribute_outer, released_variance, unevenness
from tacit.privacy.geometric import PublicMean
from tacit.threads import is_small_product, one_blas_thread
from tacit.typing import Count, FloatArray, IntArray


class StreamState(NamedTuple):
    """State of `stream-glm`: the stream, what is made of it, and public constants."""

    stream: Stream
    """w x x', packed block by block, and s y x behind it."""
    played: PublicMean
    """Mean of u u' for each block, u the direction of its theta: the axes along which H grows."""
    theta: FloatArray
    posterior: FloatArray
    """Covariance of theta, shape (d, d); with several blocks their squares, one after another."""
    covariance: FloatArray
    """The posterior covariance with the squared widths of the bonus."""
    ticks: Count
    """Releases so far."""
    solve_at: Count
    """The release at which the estimate is solved anew."""
    blocks: Blocks
    groups: list[BlockGroup]
    """The blocks by size; with one block, that alone."""
    constants: StreamConstants

    @property
    def compact(self) -> bool:
        """Whether rows are compact; else they have d numbers."""
        return self.posterior.ndim == 1


def choose(state: StreamState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    """Choose the arm of the largest score plus bonus for each of N users.

    A memo has the features of the arm and the score at which its row is linearised.  It is that of the decision, and
    the same in neighbouring worlds.
    """
    users, _, size = contexts.shape
    rows = contexts.reshape(-1, size)
    if is_small_product(rows.size, size):
        scores, variances = _beliefs_of_arms(state, rows)
    else:
        with one_blas_thread():
            scores, variances = _beliefs_of_arms(state, rows)
    arms = most_promising(scores, variances, users)
    remember_rows(contexts, arms, memos, scores)
    return arms


def _beliefs_of_arms(state: StreamState, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Score of each row, and the square of its bonus."""
    if state.covariance.ndim == 1:
        return compact_scores(rows, state.theta), compact_quadratics(state.blocks, state.covariance, rows)
    return rows.dot(state.theta), quadratics(rows, state.covariance)


def learn(state: StreamState, memos: FloatArray, rewards: FloatArray) -> None:
    """Add the contributions of N rewarded rows to the open leaf.

    A contribution is (w x x', s y x) / |x| with weight w and response y = r - mu(z) + w z (docs/theory.md, "Stream").
    """
    constants, stream = state.constants, state.stream
    rows, z = memos[:, :-1], memos[:, -1].clip(-constants.theta_bound, constants.theta_bound)
    mean, weight = blended_weights(constants.link, constants.blend, z)
    share = length_shares(rows[:, : rows.shape[1] // 2] if state.compact else rows)
    response = constants.scale * share * (rewards - mean + weight * z)
    if state.compact:
        half, grid = stream.released.size - state.theta.size, stream.constants.grid
        check_compact(rows, state.theta.size)
        add_compact_outers(state.blocks, rows, share * weight, grid, stream.leaf)
        add_compact_rows(rows, response, grid, stream.leaf[half:])
    else:
        contribute_outer(stream, 0, share * weight, rows, response)


def advance(state: StreamState, fresh: bool, users: int) -> int:
    """After a release: take in the axes that were played, and make the estimate anew.

    Where every tick releases, sums change by 1 / t: a solve for each percent keeps the cost of a round flat.  Geometric
    leaves are as rare as that by themselves.
    """
    if fresh:
        state.ticks[()] = ticks = state.ticks.item() + 1
        stream = state.stream
        # Arms of the leaf were chosen by theta, and point along it more than across.
        axes = packed_directions(state.blocks, state.theta)
        stream.mechanism.follow_public(stream.closed.item(), ticks, state.played, axes)
        if ticks >= state.solve_at.item():
            state.solve_at[()] = ticks + 1 + int(ticks / state.constants.patience)
            solve(state)
    return 0


def solve(state: StreamState) -> None:
    """Make the estimate of every block from its part of the newest release; together they keep theta's bound."""
    constants, sums, dim = state.constants, state.stream.released, state.theta.size
    score, thetas = sums[sums.size - dim :] / constants.scale, []
    dispersion, variance = constants.dispersion * unevenness(state.stream), released_variance(state.stream)
    posterior, covariance = state.posterior.reshape(-1), state.covariance.reshape(-1)
    for group in state.groups:
        with one_blas_thread(group.table.shape[-1]):
            theta, group.matrices(posterior)[:], group.matrices(covariance)[:] = solve_blocks(
                constants,
                dispersion,
                variance,
                group.unpacked(sums),
                group.vectors(score),
                group.unpacked(state.played.mean),
                group.vectors(state.theta),
                group.entries,
            )
        thetas.append(theta)
    found = np.concatenate(thetas) if len(thetas) > 1 else theta
    state.theta[:] = into_ball(found, constants.theta_bound)  # at once: it is never outside, even if interrupted


STEPS = Steps(choose, learn, advance)
