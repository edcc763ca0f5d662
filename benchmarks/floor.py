"""How far `stream-glm` is from the floor: its loop beside the same arithmetic as one bare compiled loop.

The bare loop holds the environment and the policy with one link and one schedule of leaves: no states, no dispatch, no
checks, nothing kept that the default policy does not need.  It is the one place where the arithmetic of a policy is
written a second time, so that a cost can be told as a ratio to what the machine can do.  Factors, inverses and products
of matrices are the package's: plain loops for these take longer.
``tests/experiments/test_floor.py`` holds it to the same arms as the policy for the same draws.

Times are those of the processor: other programs take none of them, though they may take the cache.

python benchmarks/floor.py                       (d = 3 to 50; prints a Markdown table)
python benchmarks/floor.py --dims 5 --repeats 9
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np

from tacit._compile import compile_now
from tacit.environments import NOW, Setting
from tacit.errors import InvalidInput
from tacit.estimation.linearised import SHORTEST
from tacit.experiments.spec import Experiment
from tacit.linalg.eigen import make_positive
from tacit.linalg.solve import cholesky, invert_cholesky
from tacit.linalg.vectors import multiply_to_symmetric
from tacit.privacy.geometric import leaf_weight, next_boundary
from tacit.typing import FloatArray, IntArray

Function = TypeVar("Function", bound=Callable[..., object])


class Problem(NamedTuple):
    """What does not change in a run: public constants of the policy, its grid, and theta*."""

    blend: float
    scale: float
    theta_bound: float
    dispersion: float
    prior: float
    width: float
    noise_width: float
    grid: float
    fluctuation: float
    head_start: int
    truth: FloatArray


class Draws(NamedTuple):
    """Random numbers of a block of rounds: Gaussian points, uniform radii and rewards; privacy noise of its leaves."""

    points: FloatArray
    radii: FloatArray
    uniforms: FloatArray
    boundaries: IntArray
    """n_k of the leaves that close in the block, and of the one after them."""
    deviations: FloatArray
    """Of their noise."""
    noise: IntArray
    """In steps of the grid."""


class Memory(NamedTuple):
    """What the loop keeps from block to block, and its work space."""

    leaf: FloatArray
    """Sum of the rows of the open leaf, in steps."""
    weighted: IntArray
    """W, in steps."""
    mean: FloatArray
    expected: FloatArray
    """The filter's estimates of the mean row and of W."""
    axes: FloatArray
    """The same of public axes: weighted sum, its estimate, mean."""
    total: FloatArray
    privacy: FloatArray
    """Covariance of the filter's errors, and the part of it that is privacy noise."""
    theta: FloatArray
    covariance: FloatArray
    widest: FloatArray
    h: FloatArray
    spread: FloatArray
    gram: FloatArray
    inverse: FloatArray
    score: FloatArray
    scores: FloatArray
    """Of the arms."""
    clock: IntArray
    """Decisions, and n_k of the leaf that was closed last."""


def compiled(function: Function) -> Function:
    """As the package compiles, without its cache on disk, which cannot tell a program from the module of its name.

    Sums may be reordered: with plain loops that is how the machine takes several numbers at a time, where the package
    writes kernels that do so in an order of their own.
    """
    return cast(Function, numba.njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})(function))


@compiled
def bare_loop(problem: Problem, draws: Draws, memory: Memory, arms: IntArray) -> float:
    """Play a block of rounds, fill in the arms, and return the regret."""
    blend, scale, bound, truth = problem.blend, problem.scale, problem.theta_bound, problem.truth
    points, radii, uniforms, boundaries = draws.points, draws.radii, draws.uniforms, draws.boundaries
    leaf, theta, covariance, widest = memory.leaf, memory.theta, memory.covariance, memory.widest
    scores, clock = memory.scores, memory.clock
    steps, root2, power = 1.0 / problem.grid, math.sqrt(2.0), 1.0 / truth.shape[0]
    dim, half, regret, closed = theta.shape[0], leaf.shape[0] - theta.shape[0], 0.0, 0
    for t in range(points.shape[0]):
        # The environment: arms in the ball, their scores under the truth.
        best_score = -math.inf
        for k in range(points.shape[1]):
            square = 0.0
            for i in range(dim):
                square += points[t, k, i] * points[t, k, i]
            radius, score = radii[t, k] ** power / math.sqrt(square), 0.0
            for i in range(dim):
                points[t, k, i] *= radius
                score += points[t, k, i] * truth[i]
            best_score = max(best_score, score)
        if clock[0] == boundaries[closed]:
            close_leaf(problem, memory, clock[0], draws.noise[closed], draws.deviations[closed])
            solve(problem, memory)
            closed += 1
        clock[0] += 1
        # The choice: the highest score first, then whatever a bonus could raise above it.
        first = 0
        for k in range(points.shape[1]):
            score = 0.0
            for i in range(dim):
                score += points[t, k, i] * theta[i]
            scores[k] = score
            if score > scores[first]:
                first = k
        arm, best, lowest = first, -math.inf, -math.inf
        for candidate in range(-1, points.shape[1]):
            k = first if candidate < 0 else candidate
            if candidate == first or scores[k] < lowest:
                continue
            form = 0.0
            for i in range(dim):
                value = 0.5 * covariance[i, i] * points[t, k, i]
                for j in range(i + 1, dim):
                    value += covariance[i, j] * points[t, k, j]
                form += value * points[t, k, i]
            index = scores[k] + math.sqrt(max(0.0, 2.0 * form))
            if index > best or (index == best and k < arm):
                arm, best, lowest = k, index, index - widest[0]
        # The reward, and the user's row.
        arms[t], z, score = arm, min(max(scores[arm], -bound), bound), 0.0
        for i in range(dim):
            score += points[t, arm, i] * truth[i]
        expected = 1.0 / (1.0 + math.exp(-score))
        regret += 1.0 / (1.0 + math.exp(-best_score)) - expected
        tail = math.exp(-abs(z))
        mean = 1.0 / (1.0 + tail) if z >= 0.0 else tail / (1.0 + tail)
        tangent = tail / ((1.0 + tail) * (1.0 + tail))
        secant = 0.25 if abs(z) < 1e-5 else (mean - 0.5) / z
        row = tangent if blend == 0.0 else (1.0 - blend) * tangent + blend * secant
        response, square, position = (1.0 if uniforms[t] < expected else 0.0) - mean + row * z, 0.0, 0
        for i in range(dim):
            square += points[t, arm, i] * points[t, arm, i]
        length = math.sqrt(square)
        share = (1.0 - 1e-15) / length if length >= SHORTEST else 1.0
        row, response = share * row, share * scale * response
        for i in range(dim):
            x = points[t, arm, i]
            leaf[half + i] += np.rint(response * x * steps)
            leaf[position] += np.rint(row * x * x * steps)
            position += 1
            for j in range(i + 1, dim):
                leaf[position] += np.rint(root2 * row * x * points[t, arm, j] * steps)
                position += 1
    return regret


@compiled
def close_leaf(problem: Problem, memory: Memory, clock: int, noise: IntArray, deviation: float) -> None:
    """The release, what the filter makes of it, and of the axis that was played."""
    theta, mean, expected, axes = memory.theta, memory.mean, memory.expected, memory.axes
    weight = int(math.sqrt(float(clock) * float(clock) + float(problem.head_start) * float(problem.head_start)))
    rows = float(clock - memory.clock[1])
    memory.clock[1] = clock
    step, variance = weight * rows, deviation * deviation
    for error, fluctuation in ((memory.total, weight * weight * rows * problem.fluctuation), (memory.privacy, 0.0)):
        error[2] += step * (2.0 * error[1] + step * error[0]) + fluctuation
        error[1] += step * error[0]
    seen = memory.total[2] + variance
    gain, gain_weighted = memory.total[1] / seen, memory.total[2] / seen
    for error in (memory.total, memory.privacy):
        before, cross, weighted, kept = error[0], error[1], error[2], 1.0 - gain_weighted
        error[0] = before - gain * (2.0 * cross - gain * weighted) + gain * gain * variance
        error[1] = kept * (cross - gain * weighted) + gain * gain_weighted * variance
        error[2] = kept * kept * weighted + gain_weighted * gain_weighted * variance
    for i in range(mean.shape[0]):
        memory.weighted[i] += weight * int(memory.leaf[i])
        memory.leaf[i] = 0.0
        predicted = expected[i] + step * mean[i]
        surprise = float(memory.weighted[i] + noise[i]) * problem.grid - predicted
        mean[i] += gain * surprise
        expected[i] = predicted + gain_weighted * surprise
    squared, position = 0.0, 0
    for i in range(theta.shape[0]):
        squared += theta[i] * theta[i]
    share = 1.0 / squared if squared > 0.0 else 0.0
    for i in range(theta.shape[0]):
        for j in range(i, theta.shape[0]):
            axis = (share if i == j else math.sqrt(2.0) * share) * theta[i] * theta[j]
            predicted = axes[1, position] + step * axes[2, position]
            axes[0, position] += step * axis
            surprise = axes[0, position] - predicted
            axes[2, position] += gain * surprise
            axes[1, position] = predicted + gain_weighted * surprise
            position += 1


@compiled
def solve(problem: Problem, memory: Memory) -> None:
    """H, shrunk and made positive; the estimate and its covariance."""
    theta, covariance, score = memory.theta, memory.covariance, memory.score
    h, spread, gram, inverse = memory.h, memory.spread, memory.gram, memory.inverse
    dim, half, rows = theta.shape[0], memory.leaf.shape[0] - theta.shape[0], float(memory.clock[1])
    variance = rows * rows * memory.privacy[0]
    unevenness = rows * max(memory.total[0] - memory.privacy[0], 0.0) / problem.fluctuation
    phi, position, level, middle = problem.dispersion * unevenness, 0, 0.0, 0.0
    for i in range(dim):
        score[i] = rows * memory.mean[half + i] / problem.scale
        for j in range(i, dim):
            root = 1.0 if i == j else math.sqrt(2.0)
            h[i, j] = h[j, i] = rows * memory.mean[position] / root
            spread[i, j] = spread[j, i] = memory.axes[2, position] / root
            position += 1
        level, middle = level + h[i, i], middle + spread[i, i]
    level, middle = max(level / dim, 0.0), middle / dim
    # Shrinkage to the identity and the axes that were played.
    common, energy = 0.0, 0.0
    for i in range(dim):
        spread[i, i] -= middle
        common += dot(h[i], spread[i])
        energy += dot(spread[i], spread[i])
    gap = 0.0 if energy <= 1e-9 or common <= 0.0 else common / energy
    gap = gap * max(0.0, 1.0 - variance / (energy * gap * gap)) if gap > 0.0 else 0.0
    energy = 0.0
    for i in range(dim):
        for j in range(dim):
            rest = h[i, j] - gap * spread[i, j] - (level if i == j else 0.0)
            energy += rest * rest
    kept = max(0.0, 1.0 - variance * (0.5 * dim * (dim + 1) - 2.0) / energy) if energy > 0.0 else 1.0
    for i in range(dim):
        for j in range(dim):
            h[i, j] = kept * h[i, j] + (1.0 - kept) * (gap * spread[i, j] + (level if i == j else 0.0))
    make_positive(h, gram, inverse, spread)
    noise = variance * (1.0 / (problem.scale * problem.scale) + 0.5 * kept * kept * dot(theta, theta))
    tau = max(noise, 0.3 * problem.prior * phi * phi)
    multiply_to_symmetric(h, h, gram)
    for i in range(dim):
        for j in range(dim):
            spread[i, j] = phi * h[i, j] + (tau if i == j else 0.0)
            gram[i, j] += problem.prior * spread[i, j]
    cholesky(gram, gram)
    invert_cholesky(gram, inverse)
    multiply_to_symmetric(spread, inverse, covariance)
    for i in range(dim):
        gram[0, i] = dot(h[i], score)
    squared, largest = problem.width * problem.width, 0.0
    extra = problem.noise_width * problem.noise_width - squared
    for i in range(dim):
        theta[i], total = dot(inverse[i], gram[0]), 0.0
        for j in range(dim):
            covariance[i, j] = squared * covariance[i, j] + extra * noise * inverse[i, j]
            total += abs(covariance[i, j])
        largest = max(largest, total)
    memory.widest[0] = math.sqrt(largest) * (1.0 + 1e-9)
    length = math.sqrt(dot(theta, theta))
    if length > problem.theta_bound:
        for i in range(dim):
            theta[i] *= problem.theta_bound / length


@compiled
def dot(x: FloatArray, y: FloatArray) -> float:
    """Inner product."""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


class Played(NamedTuple):
    """What a run did, and the processor time that it took, all draws included."""

    arms: IntArray
    regret: float
    us_per_round: float


def play_policy(experiment: Experiment, world: np.random.Generator, seed: int) -> Played:
    """A whole run of the policy on its environment."""
    policy, arms, regret, start = experiment.make_policy(seed), np.empty(experiment.horizon, dtype=np.int64), 0.0, 0
    started = time.process_time()
    for block in experiment.environment().blocks(world):
        played = policy.play(block.contexts, block.rewards)
        regret += float(np.sum(block.regrets[np.arange(played.size), played]))
        arms[start : start + played.size] = played
        start += played.size
    return Played(arms, regret, 1e6 * (time.process_time() - started) / experiment.horizon)


def covers(experiment: Experiment) -> bool:
    """Whether the bare loop plays this experiment."""
    plain = experiment.link == "logistic" and experiment.contexts == "ball" and not experiment.options
    as_drawn = experiment.base_rate is None and experiment.rewards == NOW
    return experiment.policy == "stream-glm" and plain and as_drawn


def play_floor(experiment: Experiment, world: np.random.Generator, seed: int) -> Played:
    """A whole run with the draws of the environment and of the policy of that seed, in the same order."""
    if not covers(experiment):
        raise InvalidInput("the bare loop is stream-glm's with the logistic link and contexts `ball` alone")
    policy: Any = experiment.make_policy(seed)
    setting = experiment.environment().setting
    memory, arms, regret, start = _start(policy, setting.arms), np.empty(experiment.horizon, dtype=np.int64), 0.0, 0
    started = time.process_time()
    problem, boundaries = _problem(policy, setting.draw_theta(world)), _boundaries(policy, experiment.horizon)
    for rounds in setting.block_sizes():
        stop = start + rounds
        first, last = np.searchsorted(boundaries, (start, stop))
        draws = _draws(policy, setting, world, rounds, boundaries[first : last + 1])
        regret += bare_loop(problem, draws, memory, arms[start:stop])
        start = stop
    return Played(arms, regret, 1e6 * (time.process_time() - started) / experiment.horizon)


def _boundaries(policy: Any, horizon: int) -> IntArray:
    """n_1, n_2 and so on, up to the first that is not below the horizon."""
    found, ahead = [1], policy.state.stream.mechanism.constants.head_start
    while found[-1] < horizon:
        found.append(next_boundary(found[-1], 0, ahead))
    return np.array(found)


def _draws(policy: Any, setting: Setting, world: np.random.Generator, rounds: int, boundaries: IntArray) -> Draws:
    ahead = policy.state.stream.mechanism.constants.head_start
    weights = np.array([leaf_weight(int(boundary), ahead) for boundary in boundaries], dtype=np.float64)
    weight, following = weights[:-1], weights[1:]
    inverse = weight * following / np.sqrt((following - weight) * (following + weight))
    grid = policy.state.stream.constants.grid
    steps = np.ceil(policy.noise_scale / grid * inverse * (1.0 + 1e-12))
    return Draws(
        points=world.standard_normal((rounds, setting.arms, setting.dim)),
        radii=world.random((rounds, setting.arms)),
        uniforms=world.random(rounds),
        boundaries=boundaries,
        deviations=steps * grid,
        noise=np.rint(steps[:, None] * policy.randomness.ticks.gaussian(1.0, (steps.size, policy.noise_size))).astype(
            np.int64
        ),
    )


def _problem(policy: Any, truth: FloatArray) -> Problem:
    """The policy's public constants, read from its state."""
    constants, stream = policy.state.constants, policy.state.stream
    return Problem(
        blend=constants.blend,
        scale=constants.scale,
        theta_bound=constants.theta_bound,
        dispersion=constants.dispersion,
        prior=constants.prior,
        width=constants.width,
        noise_width=constants.noise_width,
        grid=stream.constants.grid,
        fluctuation=stream.mechanism.constants.fluctuation,
        head_start=stream.mechanism.constants.head_start,
        truth=truth,
    )


def _start(policy: Any, arms: int) -> Memory:
    state = policy.state
    dim, size = state.theta.size, state.stream.leaf.size
    h, spread, gram, inverse = (np.zeros((dim, dim)) for _ in range(4))
    return Memory(
        leaf=np.zeros(size),
        weighted=np.zeros(size, dtype=np.int64),
        mean=np.zeros(size),
        expected=np.zeros(size),
        axes=np.zeros((3, size - dim)),
        total=state.stream.mechanism.total.copy(),
        privacy=np.zeros(3),
        theta=np.zeros(dim),
        covariance=state.covariance.copy(),
        widest=np.array([float(state.widest[()])]),
        h=h,
        spread=spread,
        gram=gram,
        inverse=inverse,
        score=np.zeros(dim),
        scores=np.zeros(arms),
        clock=np.zeros(2, dtype=np.int64),
    )


def compare(experiment: Experiment, repeats: int) -> tuple[float, float]:
    """Microseconds per round of the policy and of the bare loop, environment included: the best of several runs."""
    best = [math.inf, math.inf]
    for play in (play_policy, play_floor):
        play(replace(experiment, horizon=1_000), np.random.default_rng(0), 0)  # compiles it
    for _ in range(repeats):  # in turn, so that a machine that slows down slows down both
        for position, play in enumerate((play_policy, play_floor)):
            best[position] = min(best[position], play(experiment, np.random.default_rng(0), 0).us_per_round)
    return best[0], best[1]


def main() -> None:
    """Measure and print."""
    compile_now()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dims", type=int, nargs="+", default=[3, 5, 10, 20, 50])
    parser.add_argument("--arms", type=int, default=20)
    parser.add_argument("--horizon", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    print("| stream-glm, us/round | policy | bare loop | ratio |")
    print("|:---|---:|---:|---:|")
    for dim in arguments.dims:
        experiment = Experiment(
            "stream-glm", "logistic", dim, arguments.arms, arguments.horizon, 3.0, epsilon=4.0, delta=1e-5
        )
        policy, floor = compare(experiment, arguments.repeats)
        name = f"d = {dim}, K = {arguments.arms}, T = {arguments.horizon:,}"
        print(f"| {name} | {policy:.1f} | {floor:.1f} | {policy / floor:.2f} |", flush=True)


if __name__ == "__main__":
    main()
