"""How far `stream-glm` is from the floor: its loop beside the same arithmetic as one bare compiled loop.

The bare loop holds the environment and the policy with one link and one factorization: no states, no dispatch, no
checks, nothing kept that the default policy does not need.  It is the one place where the arithmetic of a policy is
written a second time, so that a cost can be told as a ratio to what the machine can do.
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
from tacit.environments import Setting
from tacit.errors import InvalidInput
from tacit.experiments.spec import Experiment
from tacit.privacy.streaming import coefficients
from tacit.typing import FloatArray, IntArray

Function = TypeVar("Function", bound=Callable[..., object])


class Problem(NamedTuple):
    """What does not change in a run: public constants of the policy, its factorization, and theta*."""

    blend: float
    scale: float
    theta_bound: float
    dispersion: float
    prior: float
    width: float
    patience: float
    noise_sd: float
    fluctuation: float
    decay: FloatArray
    weight: FloatArray
    truth: FloatArray


class Draws(NamedTuple):
    """Random numbers of a block of rounds: Gaussian points, uniform radii and rewards, privacy noise."""

    points: FloatArray
    radii: FloatArray
    uniforms: FloatArray
    noise: FloatArray


class Memory(NamedTuple):
    """What the loop keeps from block to block, and its work space."""

    leaf: FloatArray
    released: FloatArray
    last: FloatArray
    mean: FloatArray
    """Estimate of the filter, per round."""
    noise_buffers: FloatArray
    filter_buffers: FloatArray
    """The filter's estimates of the noise buffers."""
    total: FloatArray
    privacy: FloatArray
    """Covariance of the filter's errors, and the part of it that is privacy noise."""
    transition: FloatArray
    product: FloatArray
    gain: FloatArray
    theta: FloatArray
    covariance: FloatArray
    matrix: FloatArray
    spread: FloatArray
    factor: FloatArray
    inverse: FloatArray
    clock: IntArray
    """Rounds, and the round of the next solve."""


def compiled(function: Function) -> Function:
    """As the package compiles, without its cache on disk, which cannot tell a program from the module of its name."""
    return cast(Function, numba.njit(nogil=True, error_model="numpy")(function))


@compiled
def bare_loop(problem: Problem, draws: Draws, memory: Memory, arms: IntArray) -> float:
    """Play a block of rounds, fill in the arms, and return the regret."""
    blend, scale, bound, dispersion = problem.blend, problem.scale, problem.theta_bound, problem.dispersion
    prior, wide, patience, fluctuation = problem.prior, problem.width, problem.patience, problem.fluctuation
    decay, weight, truth = problem.decay, problem.weight, problem.truth
    points, radii, uniforms, noise = draws.points, draws.radii, draws.uniforms, draws.noise
    leaf, released, last, h = memory.leaf, memory.released, memory.last, memory.mean
    true_buffers, buffers = memory.noise_buffers, memory.filter_buffers
    total, privacy, transition, work = memory.total, memory.privacy, memory.transition, memory.product
    covariance, matrix, spread = memory.covariance, memory.matrix, memory.spread
    factor, inverse, gain = memory.factor, memory.inverse, memory.gain
    theta, clock = memory.theta, memory.clock
    variance, root2, power = problem.noise_sd * problem.noise_sd, math.sqrt(2.0), 1.0 / truth.shape[0]
    dim, size, count = theta.shape[0], leaf.shape[0], decay.shape[0]
    half, side, regret = size - dim, count + 1, 0.0
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
        # The release, and the filter's gains.
        for i in range(side):
            gain[i] = total[i, 0]
            for j in range(1, side):
                gain[i] -= total[i, j] * weight[j - 1]
        innovation, common = gain[0] + (variance + fluctuation), 0.0
        for j in range(1, side):
            innovation -= weight[j - 1] * gain[j]
            common -= weight[j - 1] * gain[j]
        for j in range(1, side):
            gain[j] = decay[j - 1] * gain[j] + common + variance
        for i in range(side):
            gain[i] /= innovation
        for i in range(side):
            transition[i, 0] = (1.0 if i == 0 else 0.0) - gain[i]
            for j in range(1, side):
                value = gain[i] * weight[j - 1]
                if i > 0:
                    value -= weight[j - 1]
                transition[i, j] = value + decay[j - 1] if i == j else value
        for part in range(2):
            error = total if part == 0 else privacy
            for i in range(side):
                for j in range(side):
                    value = 0.0
                    for k in range(side):
                        value += transition[i, k] * error[k, j]
                    work[i, j] = value
            for i in range(side):
                for j in range(i + 1):
                    value = 0.0
                    for k in range(side):
                        value += work[i, k] * transition[j, k]
                    error[i, j] = error[j, i] = value
        for i in range(side):
            for j in range(side):
                value = variance * ((0.0 if i == 0 else 1.0) - gain[i]) * ((0.0 if j == 0 else 1.0) - gain[j])
                privacy[i, j] += value
                total[i, j] += value + fluctuation * gain[i] * gain[j]
        for i in range(size):
            step, expected = noise[t, i], 0.0
            for j in range(count):
                step -= weight[j] * true_buffers[j, i]
                expected -= weight[j] * buffers[j, i]
            released[i] += leaf[i] + step
            surprise = (released[i] - last[i]) - h[i] - expected
            last[i] = released[i]
            h[i] += gain[0] * surprise
            for j in range(count):
                true_buffers[j, i] = decay[j] * true_buffers[j, i] + step
                buffers[j, i] = decay[j] * buffers[j, i] + expected + gain[j + 1] * surprise
            leaf[i] = 0.0
        # The estimate, when the sums have grown by a percent.
        clock[0] += 1
        if clock[0] >= clock[1]:
            rounds = float(clock[0])
            clock[1] = clock[0] + 1 + int(rounds / patience)
            phi = dispersion * (rounds * max(total[0, 0] - privacy[0, 0], 0.0) / fluctuation)
            squared, position = 0.0, 0
            for i in range(dim):
                squared += theta[i] * theta[i]
            tau = rounds * rounds * privacy[0, 0] * (1.0 / scale**2 + 0.5 * squared)
            tau = max(tau, 0.3 * prior * phi * phi)
            for i in range(dim):
                matrix[i, i] = h[position] * rounds
                position += 1
                for j in range(i + 1, dim):
                    matrix[i, j] = matrix[j, i] = h[position] / root2 * rounds
                    position += 1
            for i in range(dim):
                for j in range(dim):
                    spread[i, j] = phi * matrix[i, j] + (tau if i == j else 0.0)
                    value = 0.0
                    for k in range(dim):
                        value += matrix[i, k] * matrix[j, k]
                    factor[i, j] = value + prior * spread[i, j]
            for i in range(dim):
                for j in range(i + 1):
                    value = factor[i, j]
                    for k in range(j):
                        value -= factor[i, k] * factor[j, k]
                    factor[i, j] = math.sqrt(value) if i == j else value / factor[j, j]
            for column in range(dim):
                for i in range(dim):
                    value = 1.0 if i == column else 0.0
                    for k in range(i):
                        value -= factor[i, k] * inverse[k, column]
                    inverse[i, column] = value / factor[i, i]
                for i in range(dim - 1, -1, -1):
                    value = inverse[i, column]
                    for k in range(i + 1, dim):
                        value -= factor[k, i] * inverse[k, column]
                    inverse[i, column] = value / factor[i, i]
            for i in range(dim):
                factor[0, i] = 0.0
                for j in range(dim):
                    factor[0, i] += matrix[i, j] * (rounds * h[half + j] / scale)
            squared = 0.0
            for i in range(dim):
                theta[i] = 0.0
                for j in range(dim):
                    theta[i] += inverse[i, j] * factor[0, j]
                    value = 0.0
                    for k in range(dim):
                        value += spread[i, k] * inverse[j, k]
                    covariance[i, j] = value
                squared += theta[i] * theta[i]
            length = math.sqrt(squared)
            if length > bound:
                for i in range(dim):
                    theta[i] *= bound / length
        # The choice, the reward, and the user's row.
        arm, best, z = 0, -math.inf, 0.0
        for k in range(points.shape[1]):
            form, score = 0.0, 0.0
            for i in range(dim):
                value = 0.5 * covariance[i, i] * points[t, k, i]
                for j in range(i + 1, dim):
                    value += covariance[i, j] * points[t, k, j]
                form += value * points[t, k, i]
                score += points[t, k, i] * theta[i]
            index = score + math.sqrt(max(0.0, wide * wide * (2.0 * form)))
            if index > best:
                arm, best, z = k, index, score
        arms[t], z = arm, min(max(z, -bound), bound)
        score = 0.0
        for i in range(dim):
            score += points[t, arm, i] * truth[i]
        expected = 1.0 / (1.0 + math.exp(-score))
        regret += 1.0 / (1.0 + math.exp(-best_score)) - expected
        tail = math.exp(-abs(z))
        mean = 1.0 / (1.0 + tail) if z >= 0.0 else tail / (1.0 + tail)
        tangent = tail / ((1.0 + tail) * (1.0 + tail))
        secant = 0.25 if abs(z) < 1e-5 else (mean - 0.5) / z
        row = tangent if blend == 0.0 else (1.0 - blend) * tangent + blend * secant
        response, position = scale * ((1.0 if uniforms[t] < expected else 0.0) - mean + row * z), 0
        for i in range(dim):
            x = points[t, arm, i]
            leaf[half + i] += response * x
            leaf[position] += row * x * x
            position += 1
            for j in range(i + 1, dim):
                leaf[position] += root2 * row * x * points[t, arm, j]
                position += 1
    return regret


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
    return experiment.policy == "stream-glm" and plain


def play_floor(experiment: Experiment, world: np.random.Generator, seed: int) -> Played:
    """A whole run with the draws of the environment and of the policy of that seed, in the same order."""
    if not covers(experiment):
        raise InvalidInput("the bare loop is stream-glm's with the logistic link and contexts `ball` alone")
    policy: Any = experiment.make_policy(seed)
    setting = experiment.environment().setting
    memory, arms, regret, start = _start(policy), np.empty(experiment.horizon, dtype=np.int64), 0.0, 0
    started = time.process_time()
    problem = _problem(policy, setting.draw_theta(world))
    for rounds in setting.block_sizes():
        draws = _draws(policy, setting, world, rounds)
        regret += bare_loop(problem, draws, memory, arms[start : start + rounds])
        start += rounds
    return Played(arms, regret, 1e6 * (time.process_time() - started) / experiment.horizon)


def _draws(policy: Any, setting: Setting, world: np.random.Generator, rounds: int) -> Draws:
    return Draws(
        points=world.standard_normal((rounds, setting.arms, setting.dim)),
        radii=world.random((rounds, setting.arms)),
        uniforms=world.random(rounds),
        noise=policy.randomness.ticks.gaussian(policy.noise_scale, (rounds, policy.noise_size)),
    )


def _problem(policy: Any, truth: FloatArray) -> Problem:
    """The policy's public constants, read from its state."""
    state = policy.state
    decay, weight = coefficients(state.stream.mechanism)
    return Problem(
        blend=state.constants.blend,
        scale=state.constants.scale,
        theta_bound=state.constants.theta_bound,
        dispersion=state.constants.dispersion,
        prior=state.constants.prior,
        width=state.constants.width,
        patience=state.constants.patience,
        noise_sd=policy.noise_scale,
        fluctuation=state.filter.fluctuation,
        decay=decay,
        weight=weight,
        truth=truth,
    )


def _start(policy: Any) -> Memory:
    state = policy.state
    dim, size, count = state.theta.size, state.stream.leaf.size, coefficients(state.stream.mechanism)[0].size
    side = count + 1
    return Memory(
        leaf=np.zeros(size),
        released=np.zeros(size),
        last=np.zeros(size),
        mean=np.zeros(size),
        noise_buffers=np.zeros((count, size)),
        filter_buffers=np.zeros((count, size)),
        total=state.filter.total.copy(),
        privacy=np.zeros((side, side)),
        transition=np.zeros((side, side)),
        product=np.zeros((side, side)),
        gain=np.zeros(side),
        theta=np.zeros(dim),
        covariance=state.covariance.copy(),
        matrix=np.zeros((dim, dim)),
        spread=np.zeros((dim, dim)),
        factor=np.zeros((dim, dim)),
        inverse=np.zeros((dim, dim)),
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
