"""State and compiled steps of `stream-glm` where some coordinates are never nonzero together: arms are compact rows.

Entries of x x' that are 0 for everybody are not released: they carry no noise, and cost nothing.  Dropping coordinates
of a contribution is a projection, so that the sensitivity bound of whole rows holds (docs/theory.md#structure).  What
is dropped is dropped by position, not by value: a row that breaks the promise has its forbidden products left out too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit._compile import inlined_kernel, kernel
from tacit.linalg.blocks import (
    FORBIDDEN,
    Blocks,
    compact_dot,
    entries_in,
    entry_of,
    pack_block_outer,
    unpack_block,
)
from tacit.linalg.packing import SQRT2
from tacit.linalg.projection import project_ball
from tacit.linalg.solve import dot
from tacit.policies.arms import remember_compact_arm
from tacit.policies.beliefs import BlockBelief, most_promising
from tacit.policies.steps import close_stream, register_steps
from tacit.policies.stream.estimate import (
    SolveRoom,
    StreamConstants,
    Uncertainty,
    count_release,
    linearised,
    solve_block,
    widest_bonus,
)
from tacit.privacy.continual import Stream, contribute, released_variance, unevenness
from tacit.privacy.geometric import PublicMean
from tacit.privacy.streaming import follow_public
from tacit.typing import Count, FloatArray, Number


def make_flat_room(size: int) -> SolveRoom:
    """Room for blocks of up to so many coordinates, as vectors: each block's squares are made of the front of them."""
    h, axes, gram, inverse = (np.zeros(size * size) for _ in range(4))
    return SolveRoom(h, np.zeros(size), axes, gram, inverse)


class BlockState(NamedTuple):
    """State of `stream-glm` with structure: as `StreamState`, for each block apart."""

    stream: Stream
    """Allowed entries of w x x', packed block by block, and s y x behind them."""
    played: PublicMean
    """Mean of u u' for each block, u the direction of its theta: the axes along which H grows."""
    theta: FloatArray
    posterior: FloatArray
    """Covariances of theta: squares of all blocks, one after another."""
    covariance: FloatArray
    """The same with the squared widths of the bonus."""
    ticks: Count
    """Releases so far."""
    solve_at: Count
    """The release at which the estimate is solved anew."""
    unsolved: Count
    """Times that rounding kept a block from being solved."""
    widest: Number
    """No arm's bonus exceeds it."""
    axis: FloatArray
    """Room for u u', packed."""
    work: SolveRoom
    """Vectors: see `make_flat_room`."""
    blocks: Blocks
    constants: StreamConstants


@kernel
def _advance(state: BlockState, fresh: bool) -> int:
    if not fresh:
        return 0
    solves = count_release(state.ticks, state.solve_at, state.constants.patience)
    _remember_axes(state)
    if solves:
        solve_blocks(state)
    return 0


@inlined_kernel
def _remember_axes(state: BlockState) -> None:
    """Arms of a block are chosen along its own theta."""
    blocks, axis = state.blocks, state.axis
    for i in range(axis.shape[0]):
        axis[i] = 0.0
    for owner in range(blocks.starts.shape[0] - 1):
        theta = state.theta[blocks.starts[owner] : blocks.starts[owner + 1]]
        squared = dot(theta, theta)
        if squared > 0.0:
            pack_block_outer(blocks, owner, 1.0 / squared, theta, axis)
    follow_public(state.stream.mechanism, state.stream.closed, state.ticks[()], state.played, axis)


@inlined_kernel
def solve_blocks(state: BlockState) -> None:
    """The estimate of every block from its part of the newest release; all together are kept within theta's bound."""
    blocks, constants = state.blocks, state.constants
    dispersion, variance = constants.dispersion * unevenness(state.stream), released_variance(state.stream)
    widest = 0.0
    for owner in range(blocks.starts.shape[0] - 1):
        start, stop = blocks.starts[owner], blocks.starts[owner + 1]
        corner, size = blocks.corners[owner], stop - start
        posterior = state.posterior[corner : corner + size * size].reshape((size, size))
        covariance = state.covariance[corner : corner + size * size].reshape((size, size))
        entries = float(blocks.entries[owner + 1] - blocks.entries[owner])
        room = _read_block(state, owner, start, size)
        known = Uncertainty(dispersion, variance, entries)
        if not solve_block(constants, known, room, state.theta[start:stop], posterior, covariance):
            state.unsolved[()] += 1
        widest = max(widest, widest_bonus(covariance))
    project_ball(state.theta, constants.theta_bound)
    state.widest[()] = widest


@inlined_kernel
def _read_block(state: BlockState, owner: int, start: int, size: int) -> SolveRoom:
    """H, b and the axes of a block, in squares of its size."""
    flat, sums, square = state.work, state.stream.released, (size, size)
    area, half = size * size, sums.shape[0] - state.theta.shape[0]
    room = SolveRoom(
        flat.h[:area].reshape(square),
        flat.score[:size],
        flat.axes[:area].reshape(square),
        flat.gram[:area].reshape(square),
        flat.inverse[:area].reshape(square),
    )
    unpack_block(state.blocks, owner, sums, room.h)
    unpack_block(state.blocks, owner, state.played.mean, room.axes)
    for i in range(size):
        room.score[i] = sums[half + start + i] / state.constants.scale
    return room


@kernel
def _choose(state: BlockState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    belief = BlockBelief(state.theta, state.covariance, state.blocks)
    arm = most_promising(belief, state.widest[()], contexts)
    remember_compact_arm(contexts, arm, memo)
    size, bound = memo.shape[0] - 1, state.constants.theta_bound
    memo[size] = min(max(compact_dot(memo[:size], state.theta), -bound), bound)
    return arm


@kernel
def _learn(state: BlockState, memo: FloatArray, reward: float) -> None:
    size, dim = memo.shape[0] - 1, state.theta.shape[0]
    held, width = entries_in(memo[:size], dim), size // 2
    weight, response = linearised(state.constants, memo[:width], float(memo[size]), reward)
    half, scaled = state.stream.released.shape[0] - dim, state.constants.scale * response
    for k in range(held):
        first = int(memo[width + k])
        contribute(state.stream, half + first, scaled * memo[k])
        for j in range(k, held):
            entry = entry_of(state.blocks, first, int(memo[width + j]))
            if entry != FORBIDDEN:
                factor = weight if j == k else SQRT2 * weight
                contribute(state.stream, entry, factor * memo[k] * memo[j])


register_steps(BlockState, _advance, _choose, _learn, close_stream)
