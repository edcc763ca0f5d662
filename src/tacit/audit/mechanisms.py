"""Attacks on single mechanisms: the best statistic there is, on many runs of their own code.

The attacker knows everything except one user's row, which is one of two.  For Gaussian releases R = A x + B z the log-
likelihood ratio is a projection; A and B are not taken from a formula but found by sending unit impulses through
the code under audit.  For shuffled sums it is the ratio of two binomial probabilities of the counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from scipy.stats import binom

from tacit.audit.statistics import Samples
from tacit.audit.worlds import copied, unit
from tacit.estimation.optimizers import NoisyNewton
from tacit.estimation.plan import Regression, gradient_sum
from tacit.glm.links import get_link
from tacit.glm.rows import ALL_ROWS, Selection, rows_of
from tacit.linalg.packing import packed
from tacit.privacy.budget import Budget
from tacit.privacy.continual import (
    ContinualRelease,
    close_leaf,
    leaf_is_due,
    leaf_noise_scale,
    plan_release,
    published,
)
from tacit.privacy.events import GaussianRelease
from tacit.privacy.factorization import Geometric
from tacit.privacy.gaussian import mu_from
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise import FastNoise
from tacit.shuffle.analyzer import analyze
from tacit.shuffle.calibration import calibrate
from tacit.shuffle.domains import OuterProducts
from tacit.shuffle.messages import Aggregate
from tacit.shuffle.parameters import SumProtocol
from tacit.shuffle.randomizer import randomize
from tacit.shuffle.shuffler import Shuffler
from tacit.shuffle.sums import sample_sum
from tacit.typing import FloatArray

Attack = Callable[[float, float, int, np.random.Generator], Samples]
"""From epsilon, delta, runs per world and randomness to log-likelihood ratios."""

LEAVES: Final = 16
USERS: Final = 100


def _release_runs(plan: ContinualRelease, leaves: FloatArray, noise: FloatArray) -> FloatArray:
    """Run the stream once for each line of ``noise`` over the same leaves; all that was released."""
    out, fresh = np.empty(noise.shape), plan.open()
    for run in range(noise.shape[0]):
        stream = copied(fresh)
        for leaf in range(leaves.shape[0]):
            while not leaf_is_due(stream):  # the decision before the first leaf of a schedule
                close_leaf(stream, noise[run, leaf], 1)
            stream.leaf[:] = leaves[leaf]
            close_leaf(stream, noise[run, leaf], 1)
            out[run, leaf] = published(stream)
    return out


def _noise_scales(plan: ContinualRelease) -> FloatArray:
    """Scale of the noise of every leaf."""
    stream, scales = plan.open(), np.empty(LEAVES)
    for leaf in range(LEAVES):
        while not leaf_is_due(stream):
            close_leaf(stream, np.zeros(3), 1)
        scales[leaf] = leaf_noise_scale(stream)
        close_leaf(stream, np.zeros(3), 1)
    return scales


def attack_stream(factorization: str) -> Attack:
    """The attack on a continual release: one user in the first leaf, two outer products at a right angle."""

    def attack(epsilon: float, delta: float, runs: int, rng: np.random.Generator) -> Samples:
        plan = plan_release(
            "audited",
            3,
            row_bound=math.sqrt(2.0),
            row_norm=1.0,
            mu=mu_from(epsilon, delta),
            factorization=factorization,
            horizon=LEAVES,
            source=FastNoise(rng),
        )
        Ledger(Budget(epsilon, delta)).charge(plan.event())
        others = np.tile(packed(0.125 * np.eye(2)), (LEAVES, 1))
        first, second = others.copy(), others.copy()
        first[0] += packed(np.diag([1.0, 0.0]))
        second[0] += packed(np.diag([0.0, 1.0]))
        by_leaf, by_noise = _responses(plan)
        scales, event = _noise_scales(plan), plan.event()
        assert isinstance(event, GaussianRelease)
        charged = scales * (event.noise_sd / plan.noise_sd)
        whitener = np.linalg.inv(by_noise) / charged[:, np.newaxis]
        direction = whitener @ by_leaf @ (second - first)
        middle = whitener @ by_leaf @ (0.5 * (first + second))
        found = []
        for leaves in (first, second):
            draw = plan.source.integers if isinstance(plan.factorization, Geometric) else plan.source.gaussian
            out = _release_runs(plan, leaves, np.stack([draw(scale, (runs, 3)) for scale in scales], axis=1))
            found.append(np.einsum("rti,ti->r", np.einsum("st,rti->rsi", whitener, out) - middle, direction))
        return Samples(found[0], found[1])

    return attack


def _responses(plan: ContinualRelease) -> tuple[FloatArray, FloatArray]:
    """Response of each release to a unit in one leaf or in one draw of noise, column by column."""
    units = np.eye(LEAVES)[:, :, np.newaxis] * np.ones(3)
    by_leaf = np.array([_release_runs(plan, unit, np.zeros((1, LEAVES, 3)))[0, :, 0] for unit in units]).T
    return by_leaf, _release_runs(plan, np.zeros((LEAVES, 3)), units)[:, :, 0].T


def attack_gradient(epsilon: float, delta: float, runs: int, rng: np.random.Generator) -> Samples:
    """The optimizer's gradient sum at a theta of norm S: the two rows whose gradients lie furthest apart."""
    problem = Regression(get_link("logistic"), 2, 2.0, sharp=True)
    optimizer, source = NoisyNewton(problem, mu_from(epsilon, delta), steps=1), FastNoise(rng)
    release = optimizer.release(source)
    Ledger(Budget(epsilon, delta)).charge(release.event)
    features, rewards = 0.5 * unit(rng, USERS, 2), rng.random(USERS)
    sums = []
    for x, reward in _furthest_rows(problem):
        features[0], rewards[0] = x, reward
        rows, theta = Selection(rows_of(features, rewards), ALL_ROWS), np.array([problem.theta_bound, 0.0])
        sums.append(gradient_sum(problem, rows, theta, release.grid))
    direction, middle = (sums[1] - sums[0]) / release.event.noise_sd**2, 0.5 * (sums[0] + sums[1])
    first, second = ((total + source.gaussian(release.noise_sd, (runs, 2)) - middle) @ direction for total in sums)
    return Samples(first, second)


def _furthest_rows(problem: Regression) -> list[tuple[FloatArray, float]]:
    """The two rows whose gradients at theta = (S, 0) lie furthest apart, by brute force over directions and rewards."""
    turns = np.repeat(np.linspace(0.0, 2.0 * math.pi, 181), 2)
    rewards = np.tile([0.0, problem.reward_bound], 181)
    features = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    gradients = (problem.link.mean(problem.theta_bound * features[:, 0]) - rewards)[:, None] * features
    distances = np.linalg.norm(gradients[:, None] - gradients[None], axis=2)
    return [(features[i], float(rewards[i])) for i in np.unravel_index(int(np.argmax(distances)), distances.shape)]


def attack_shuffle(release: Callable[[SumProtocol, FloatArray, np.random.Generator], Aggregate]) -> Attack:
    """The attack on a shuffled sum of outer products, by the counts that the analyzer sees."""

    def attack(epsilon: float, delta: float, runs: int, rng: np.random.Generator) -> Samples:
        protocol = calibrate(OuterProducts(2), USERS, epsilon, delta, max_bits=256)
        rows = np.zeros((USERS, 2))
        found = []
        for sign in (0, 1):
            rows[0] = (1.0 - sign, float(sign))
            counts = np.array([_counts(protocol, release(protocol, rows, rng)) for _ in range(runs)])
            found.append(_count_ratio(protocol, counts))
        return Samples(found[0], found[1])

    return attack


def _counts(protocol: SumProtocol, released: Aggregate) -> FloatArray:
    """Ones of the two diagonal coordinates, from the debiased sum."""
    expected = protocol.noise_trials(USERS) * protocol.noise_probability
    return np.rint(released.values[[0, 2]] / protocol.step + expected)


def _count_ratio(protocol: SumProtocol, counts: FloatArray) -> FloatArray:
    """log P(counts | second) / P(counts | first): the replaced user adds all levels to one diagonal entry."""
    trials, p, levels = protocol.noise_trials(USERS), protocol.noise_probability, int(protocol.levels[0])
    without, having = (binom.logpmf(counts - shift, trials, p) for shift in (0, levels))
    return np.asarray(having[:, 1] - without[:, 1] + without[:, 0] - having[:, 0], dtype=np.float64)


def release_bits(protocol: SumProtocol, rows: FloatArray, rng: np.random.Generator) -> Aggregate:
    """One sum as real bits through the three roles."""
    shuffler = Shuffler(protocol)
    shuffler.collect(randomize(protocol, rows, rng))
    return analyze(protocol, shuffler.release(rng))


MECHANISMS: Final[Mapping[str, Attack]] = MappingProxyType(
    {
        "tree": attack_stream("tree"),
        "geometric": attack_stream("geometric"),
        "toeplitz": attack_stream("toeplitz"),
        "gradient": attack_gradient,
        "shuffle-sum": attack_shuffle(sample_sum),
        "shuffle-bits": attack_shuffle(release_bits),
    }
)
