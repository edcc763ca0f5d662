"""The floor beneath `stream-glm`: its arithmetic and its environment as one bare compiled loop.

A benchmark baseline and nothing else: the one place where the arithmetic of a policy is written a second time, so that
a cost can be told as a ratio to what the machine can do.  No states, no dispatch, no checks, one link, one
factorization, nothing kept that the default policy does not need.  ``tests/experiments/test_speed.py`` holds it to the
same arms as the policy for the same draws.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np

from tacit._compile import kernel
from tacit.errors import InvalidInput
from tacit.experiments.spec import Experiment
from tacit.policies.stream.steps import BLEND, DISPERSION, PATIENCE, PRIOR, SCALE, THETA_BOUND, WIDTH, StreamState
from tacit.typing import FloatArray, IntArray

_BLOCK_NUMBERS = 1 << 17
"""Numbers of a block of contexts, as in the environment: the cache holds them."""


class Memory(NamedTuple):
    """What the loop keeps from block to block; ``clock``: rounds, and the round of the next solve."""

    sums: FloatArray  # leaf, released, last, mean of the filter
    buffers: FloatArray  # of the noise and their estimates, (2, buffers, size)
    errors: FloatArray  # total and privacy, and work space, (5, buffers + 1, buffers + 1)
    theta: FloatArray
    square: FloatArray  # covariance, H, spread, factor, inverse
    clock: IntArray


@kernel
def bare_loop(
    constants: FloatArray,
    sd: float,
    fluctuation: float,
    decay: FloatArray,
    weight: FloatArray,
    truth: FloatArray,
    points: FloatArray,
    radii: FloatArray,
    uniforms: FloatArray,
    noise: FloatArray,
    memory: Memory,
    arms: IntArray,
) -> float:
    """Play a block of rounds from Gaussian ``points``, uniform ``radii`` and ``uniforms``, and noise; their regret."""
    blend, scale, bound, dispersion = constants[BLEND], constants[SCALE], constants[THETA_BOUND], constants[DISPERSION]
    prior, wide, patience = constants[PRIOR], constants[WIDTH], constants[PATIENCE]
    variance, root2, power = sd * sd, math.sqrt(2.0), 1.0 / truth.shape[0]
    leaf, released, last, h = memory.sums[0], memory.sums[1], memory.sums[2], memory.sums[3]
    true_buffers, buffers = memory.buffers[0], memory.buffers[1]
    total, privacy, transition, work = memory.errors[0], memory.errors[1], memory.errors[2], memory.errors[3]
    covariance, matrix, spread = memory.square[0], memory.square[1], memory.square[2]
    factor, inverse, gain = memory.square[3], memory.square[4], memory.errors[4, 0]
    theta, clock = memory.theta, memory.clock
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
    """What a run of the bare loop did, and what it took, all draws included."""

    arms: IntArray
    regret: float
    us_per_round: float


def covers(experiment: Experiment) -> bool:
    """Whether the bare loop plays this experiment."""
    plain = experiment.link == "logistic" and experiment.contexts == "ball" and not experiment.options
    return experiment.policy == "stream-glm" and plain


def play_floor(experiment: Experiment, world: np.random.Generator, seed: int) -> Played:
    """A whole run with the draws of the environment and of the policy of that seed, in the same order."""
    if not covers(experiment):
        raise InvalidInput("the bare loop is stream-glm's with the logistic link and contexts `ball` alone")
    policy = experiment.make_policy(seed)
    state: StreamState = policy.state
    memory, arms, regret = _start(state), np.empty(experiment.horizon, dtype=np.int64), 0.0
    size = max(16, _BLOCK_NUMBERS // (experiment.arms * experiment.dim))
    started = time.perf_counter()
    direction = world.standard_normal(experiment.dim)
    truth = experiment.theta_norm * direction / float(np.linalg.norm(direction))
    for start in range(0, experiment.horizon, size):
        rounds = min(size, experiment.horizon - start)
        points = world.standard_normal((rounds, experiment.arms, experiment.dim))
        radii, uniforms = world.random((rounds, experiment.arms)), world.random(rounds)
        noise = policy.noise.gaussian(policy.noise_scale, (rounds, policy.noise_size))
        regret += bare_loop(
            state.constants,
            policy.noise_scale,
            float(state.rows.fluctuation[0]),
            state.stream.decay,
            state.stream.weight,
            truth,
            points,
            radii,
            uniforms,
            noise,
            memory,
            arms[start : start + rounds],
        )
    return Played(arms, regret, 1e6 * (time.perf_counter() - started) / experiment.horizon)


def _start(state: StreamState) -> Memory:
    dim, size, count = state.theta.size, state.stream.leaf.size, state.stream.decay.size
    memory = Memory(
        sums=np.zeros((4, size)),
        buffers=np.zeros((2, count, size)),
        errors=np.zeros((5, count + 1, count + 1)),
        theta=np.zeros(dim),
        square=np.zeros((5, dim, dim)),
        clock=np.zeros(2, dtype=np.int64),
    )
    memory.errors[0] = state.rows.total
    memory.square[0] = state.covariance
    return memory
