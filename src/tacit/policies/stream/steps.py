"""State and compiled steps of `stream-glm` where all coordinates can be nonzero together: arms are rows of d numbers.

One continual stream releases matrix and score of a linearised regression; the estimate is post-processing of it, made
anew while it still changes (`tacit.policies.stream.estimate`).  Nothing else is released.
"""

from __future__ import annotations

from typing import NamedTuple

from tacit._compile import inlined_kernel, kernel
from tacit.linalg.packing import add_packed_outer, unpack
from tacit.linalg.projection import project_ball
from tacit.linalg.solve import dot
from tacit.policies.arms import remember_arm
from tacit.policies.beliefs import GaussianBelief, most_promising
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
from tacit.privacy.continual import Stream, contribute_outer, contribute_vector, released_variance, unevenness
from tacit.privacy.geometric import PublicMean
from tacit.privacy.streaming import follow_public
from tacit.typing import Count, FloatArray, Number


class StreamState(NamedTuple):
    """State of `stream-glm`: the stream, what is made of it, and public constants."""

    stream: Stream
    """w x x', packed, and s y x behind it."""
    played: PublicMean
    """Mean of u u', u the direction of the theta that arms were chosen by: the axes along which H grows."""
    theta: FloatArray
    posterior: FloatArray
    """Covariance of theta, from the released statistics and the known noise."""
    covariance: FloatArray
    """The same with the squared widths of the bonus."""
    ticks: Count
    """Releases so far."""
    solve_at: Count
    """The release at which the estimate is solved anew."""
    unsolved: Count
    """Times that rounding kept it from being solved; a function of releases, like the estimate."""
    widest: Number
    """No arm's bonus exceeds it."""
    axis: FloatArray
    """Room for u u', packed."""
    work: SolveRoom
    constants: StreamConstants


@kernel
def _advance(state: StreamState, fresh: bool) -> int:
    if fresh:
        due = count_release(state.ticks, state.solve_at, state.constants.patience)
        _remember_axis(state)
        if due:
            solve(state)
    return 0


@inlined_kernel
def _remember_axis(state: StreamState) -> None:
    """Arms of the leaf that was just closed were chosen by theta: they point along it more than across."""
    theta, axis = state.theta, state.axis
    squared = dot(theta, theta)
    for i in range(axis.shape[0]):
        axis[i] = 0.0
    if squared > 0.0:
        add_packed_outer(1.0 / squared, theta, axis)
    follow_public(state.stream.mechanism, state.stream.closed, state.ticks[()], state.played, axis)


@inlined_kernel
def solve(state: StreamState) -> None:
    """The estimate that the newest release makes of theta, and how uncertain it is."""
    constants, sums, dim = state.constants, state.stream.released, state.theta.shape[0]
    half, score = sums.shape[0] - dim, state.work.score
    unpack(sums[:half], state.work.h)
    unpack(state.played.mean, state.work.axes)
    for i in range(dim):
        score[i] = sums[half + i] / constants.scale
    known = Uncertainty(constants.dispersion * unevenness(state.stream), released_variance(state.stream), float(half))
    if not solve_block(constants, known, state.work, state.theta, state.posterior, state.covariance):
        state.unsolved[()] += 1
        return
    project_ball(state.theta, constants.theta_bound)
    state.widest[()] = widest_bonus(state.covariance)


@kernel
def _choose(state: StreamState, contexts: FloatArray, coins: FloatArray, memo: FloatArray) -> int:
    arm = most_promising(GaussianBelief(state.theta, state.covariance), state.widest[()], contexts)
    remember_arm(contexts, arm, memo)
    # Behind the features: the score at which the row is linearised.  It is that of the decision, and the same in
    # neighbouring worlds.
    dim = state.theta.shape[0]
    bound = state.constants.theta_bound
    memo[dim] = min(max(dot(memo[:dim], state.theta), -bound), bound)
    return arm


@kernel
def _learn(state: StreamState, memo: FloatArray, reward: float) -> None:
    dim = state.theta.shape[0]
    x = memo[:dim]
    weight, response = linearised(state.constants, x, float(memo[dim]), reward)
    contribute_outer(state.stream, 0, weight, x)
    contribute_vector(state.stream, state.stream.released.shape[0] - dim, state.constants.scale * response, x)


register_steps(StreamState, _advance, _choose, _learn, close_stream)
