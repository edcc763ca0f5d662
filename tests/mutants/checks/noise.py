"""Checks of noise: its size, its independence, what it is added to, and that each draw is used once."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from tacit.audit.joint_draws import DrawRecord, joint_findings
from tacit.audit.rehearsal import private_class
from tacit.audit.replay import load_private, own_registry
from tacit.audit.session import Session
from tacit.audit.statistics import noise_scale_bounds
from tacit.audit.worlds import copied
from tacit.policies.log import Publisher
from tacit.policies.private_policy import PrivatePolicy
from tacit.privacy import continual
from tacit.privacy.factorization import FACTORIZATIONS
from tacit.privacy.noise import ExactNoise, FastNoise
from tacit.typing import FloatArray

EPSILON, DELTA = 4.0, 1e-5
_FALSE_ALARM: Final = 1e-9
STREAMS: Final = ("stream-glm", "joint-glm", "joint-linucb")


def small_policy(seed: int | None = 5, name: str = "stream-glm", **options: Any) -> PrivatePolicy:
    """A policy that a check can play through in no time."""
    setting = {"dim": 2, "horizon": 64, "epsilon": EPSILON, "delta": DELTA, "theta_bound": 2.0, "seed": seed}
    return private_class(name)(**(setting | options))


def walk(policy: PrivatePolicy, rounds: int) -> None:
    """Two arms, always paid."""
    for _ in range(rounds):
        policy.update(policy.select(np.eye(2)), 1.0)


def _watched(policy: PrivatePolicy, rounds: int) -> Session:
    """What a policy draws on its way, in units of what was planned."""
    session = Session([policy, small_policy(0, "joint-linucb")])
    walk(policy, rounds)
    return session


def _draws(policy: PrivatePolicy, rounds: int) -> list[DrawRecord]:
    return _watched(policy, rounds).draws


def noise_scale() -> list[str]:
    """The noise that a policy draws has the standard deviation that the ledger was told."""
    drawn = []
    for seed in range(40):
        policy = small_policy(seed)
        drawn += [noise for _, noise in _draws(policy, 40)]
    low, high = noise_scale_bounds(np.concatenate([np.ravel(noise) for noise in drawn]))
    return [] if low <= 1.0 <= high else [f"noise is between {low:.3f} and {high:.3f} times what was charged"]


def joint_draws() -> list[str]:
    """All draws of all sources together are independent, across coordinates, leaves, calls, runs and policies."""
    runs = [_watched(small_policy(seed), 40) for seed in range(12)]
    calls = {"epsilon": 400.0, "horizon": 128, "theta_bound": 0.5}
    runs += [_watched(small_policy(100 + seed, "joint-glm", **calls), 100) for seed in range(12)]
    found = joint_findings([run.draws for run in runs], steps=min(run.steps for run in runs))
    return found + _found_in_all_policies(4)


def _draws_of_all_policies(runs: int) -> tuple[list[list[DrawRecord]], float]:
    """What policies of one process draw from the operating system, each policy a kind of its own; and their steps."""
    found: list[list[DrawRecord]] = [[] for _ in range(runs)]
    steps = math.inf
    for run in found:
        for name in (*STREAMS, "local-glm"):
            session = _watched(small_policy(None, name), 40)
            run += [(f"{name}: {kind}", noise) for kind, noise in session.draws]
            steps = min(steps, session.steps)
    return found, steps


def _found_in_all_policies(runs: int) -> list[str]:
    draws, steps = _draws_of_all_policies(runs)
    return joint_findings(draws, steps=steps)


def fresh_noise() -> list[str]:
    """No draw is used twice, restored states included; those in whole numbers are compared up to their rounding."""
    with own_registry(), tempfile.TemporaryDirectory() as folder:
        policy = small_policy()
        draws = _draws(policy, 10)
        # The policy under watch is not the one to save: sources are wrapped.  A twin by the same calls is.
        policy = small_policy()
        walk(policy, 10)
        policy.save(Path(folder) / "state")
        draws += _draws(load_private(Path(folder) / "state"), 10)
    lines = np.concatenate([np.atleast_2d(noise) for _, noise in draws])
    apart = np.max(np.abs(lines[:, np.newaxis] - lines), axis=2)
    repeated = int(np.sum(np.triu(apart < 0.01, 1)))
    return [f"{repeated} of {len(lines)} lines of noise were used before"] if repeated else []


def fresh_exact_noise() -> list[str]:
    """The exact sampler never hands out a draw again: neither for the same parameters nor in another life.

    A line of n entries with a parameter of s is a given one with probability at most (0.4 / s)^n; lines are compared
    that are so long that among all pairs of them a false alarm has a probability below 1e-9.
    """
    source, found, grid = ExactNoise(2.0**-20), list[str](), 2.0**-20
    for scale in (2.0**-6, 1.0, 2.0**10):
        found += _drawn_before(f"noise of scale {scale:g}", [source.gaussian(scale, 8) for _ in range(50)], scale, grid)
    for steps in (300.0, 2.0**20):
        draws = [source.integers(steps, (2, 8)) for _ in range(25)]
        found += _drawn_before(f"noise of {steps:g} steps", list(np.concatenate(draws)), steps, 1.0)
    for name in (*STREAMS, "local-glm"):
        lives = [_watched(small_policy(None, name), 12) for _ in range(3)]
        lines = [line for life in lives for _, noise in life.draws for line in np.atleast_2d(noise)]
        found += _drawn_before(f"{name}: noise of three lives", lines, min(life.steps for life in lives), 1.0)
    return found


def _drawn_before(what: str, lines: list[FloatArray], scale: float, grid: float) -> list[str]:
    """Says so where one of these lines was drawn more than once, or where none is so long that this proves anything.

    How many private optimizers are called, whose lines are short, depends on the noise.
    """
    chance = {line.size: 0.5 * len(lines) ** 2 * (0.4 * grid / scale) ** line.size for line in lines}
    telling = [line.tobytes() for line in lines if chance[line.size] <= _FALSE_ALARM]
    if not telling:
        return [f"{what}: equal lines have a probability of {min(chance.values(), default=1.0):.1e}, and prove nothing"]
    repeated = len(telling) - len(set(telling))
    return [f"{what}: {repeated} of {len(telling)} lines were drawn before"] if repeated else []


def stream_reference() -> list[str]:
    """Releases are A x + B z with one z per leaf, also in a second epoch: a dense computation gives the same."""
    found, rng, leaves, publisher = geometric_reference(), np.random.default_rng(3), 16, Publisher()
    for name in ("toeplitz", "tree"):
        plan = continual.plan_release(
            "checked", 2, row_bound=1.0, row_norm=1.0, mu=1.0, factorization=name, horizon=leaves, source=FastNoise(rng)
        )
        stream, carried = plan.open(), np.zeros(2)
        for epoch in (1, 2):
            rows, noise = rng.random((leaves, 2)), plan.source.gaussian(plan.noise_sd, (leaves, 2))
            expected = carried + np.cumsum(rows, axis=0) + _dense_response(plan) @ noise
            for leaf in range(leaves):
                stream.leaf[:] = rows[leaf]
                publisher.leaf(stream, noise[leaf], 1)
                if not np.allclose(stream.released, expected[leaf], atol=1e-9):
                    found.append(f"{name}: release {leaf + 1} of epoch {epoch} is not the exact sum plus its noise")
                    break
            carried = stream.released.copy()
            continual.start_epoch(stream, plan)
    return found


def geometric_reference() -> list[str]:
    """Geometric leaves: integer sums on the schedule, fresh noise, columns of C / s of norm at most 1 / sigma."""
    rng, publisher, size = np.random.default_rng(4), Publisher(), 2
    plan = continual.plan_release(
        "checked",
        size,
        row_bound=1.0,
        row_norm=1.0,
        mu=1.0,
        factorization="geometric",
        horizon=1,
        source=FastNoise(rng),
    )
    schedule = [1]
    while schedule[-1] < 2_000:
        schedule.append(schedule[-1] + max(1, schedule[-1] // 100))
    stream, clock, weight, sums = plan.open(), 0, 1, np.zeros(size, dtype=np.int64)
    weights, scales = list[int](), list[float]()
    for users in rng.choice([1, 1, 1, 2, 7], size=600):
        due, noise = clock >= weight, np.zeros(size)
        if due:
            weights.append(weight)
            scales.append(continual.leaf_noise_scale(stream))
            sums += weight * np.asarray(stream.leaf / plan.grid, dtype=np.int64)
            noise = plan.source.integers(scales[-1], size)
            weight = next(n for n in schedule if n > clock)
        if publisher.leaf(stream, noise, int(users)) != due:
            return [f"geometric: after {clock} decisions a leaf should {'' if due else 'not '}be closed"]
        if due and not np.array_equal(continual.published(stream), sums + noise.astype(np.int64)):
            return [f"geometric: release {len(weights)} is not the weighted sum plus its noise"]
        clock += int(users)
        stream.leaf[:] += np.rint(rng.random(size) / plan.grid) * plan.grid
    a, s = np.array(weights, dtype=np.float64), plan.grid * np.array(scales)
    longest = float(np.max(a * np.sqrt(np.cumsum(s[::-1] ** -2.0)[::-1]))) * plan.noise_sd
    within = 0.99 <= longest <= 1.0
    return [] if within else [f"geometric: the longest column has norm {longest:.6f}, charged as 1"]


def _dense_response(plan: continual.ContinualRelease) -> FloatArray:
    """B: for the tree by which nodes make up a prefix, for Toeplitz as the inverse of C times the sums."""
    leaves = plan.factorization.horizon
    if plan.factorization.name == "tree":
        response = np.zeros((leaves, leaves))
        for leaf in range(1, leaves + 1):
            rest = leaf
            while rest:  # the node that ends at ``rest`` was closed, and noised, at that leaf
                response[leaf - 1, rest - 1] = 1.0
                rest &= rest - 1
        return response
    powers = np.arange(leaves - 1)
    tail = (plan.factorization.weight[:, None] * plan.factorization.decay[:, None] ** powers).sum(axis=0)
    column = np.concatenate([[1.0], tail])
    toeplitz = np.array([[column[i - j] if i >= j else 0.0 for j in range(leaves)] for i in range(leaves)])
    return np.asarray(np.tril(np.ones((leaves, leaves))) @ np.linalg.inv(toeplitz))


def play_is_select_and_update() -> list[str]:
    """Rounds that are played together end in the state of single calls: audits of these are about simulations too."""
    found, rng = [], np.random.default_rng(5)
    arms = rng.standard_normal((40, 3, 2))
    arms /= np.linalg.norm(arms, axis=2, keepdims=True)
    rewards = (rng.random((40, 3)) < 0.5).astype(np.float64)
    for name in STREAMS:
        for factorization in FACTORIZATIONS:
            single, played = (small_policy(3, name, factorization=factorization) for _ in range(2))
            for own, outcome in zip(arms, rewards, strict=True):
                decision = single.select(own)
                single.update(decision, float(outcome[decision.arm]))
            played.play(arms, rewards)
            same = played.public_fingerprint() == single.public_fingerprint()
            if not same:
                found.append(f"{name}, {factorization}: play and single calls end in different states")
    return found


def late_rows_contribute_alike() -> list[str]:
    """What a row adds to a leaf is fixed at its decision, whenever its reward comes: the delay is part of the row."""
    found = []
    for name in STREAMS:
        policy = small_policy(2, name, epsilon=200.0)
        walk(policy, 20)
        decision = policy.select(np.eye(2))
        at_once = _contribution(policy, decision.id)
        walk(policy, 20)
        if not np.array_equal(at_once, _contribution(policy, decision.id)):
            found.append(f"{name}: what a row contributes depends on when its reward comes")
    return found


def _contribution(policy: PrivatePolicy, identity: int) -> FloatArray:
    state = copied(policy.state)
    leaf = state.stream.leaf
    leaf[:] = np.random.default_rng(policy.decisions).integers(-8, 9, leaf.size)  # what waits there must not matter
    before = leaf.copy()
    policy._steps.learn(state, policy._pending.memo(identity)[np.newaxis], np.ones(1))
    return np.asarray(np.round(leaf - before, 12))


def whole_sums() -> list[str]:
    """Rows are rounded when they come: leaves of integer streams are whole numbers of steps at any time."""
    found, rng = [], np.random.default_rng(6)
    for name in STREAMS:
        policy = small_policy(4, name, factorization="geometric")
        for _ in range(20):
            arms = rng.standard_normal((3, 2))
            policy.update(policy.select(arms / np.linalg.norm(arms, axis=1, keepdims=True)), float(rng.random() < 0.5))
            stream = policy.state.stream
            steps = stream.leaf / stream.constants.grid
            if not np.array_equal(steps, np.rint(steps)):
                found.append(f"{name}: the open leaf holds numbers off the grid")
                break
    return found


def exact_noise() -> list[str]:
    """Under exact noise everything public is a function of sum + noise: no neighbour is excluded by a bit.

    Of the wrong order of a pull (``pull-first``) a redraw tells about once in fifty, in four of the kinds, and another
    redraw on each processor: that none of these does has a chance below 1e-9.
    """
    from tests.mutants.exclusions import KINDS, count_exclusions

    found = []
    for kind in KINDS:
        counted = count_exclusions(kind, 320, seed=7)
        if counted.excluded:
            found.append(f"{kind}: {counted.excluded} of {counted.redraws} redraws exclude a neighbour with certainty")
    return found
