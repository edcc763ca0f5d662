"""Named checks, each of which a certain kind of fault cannot pass; a check returns what it found wrong."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tacit.audit.cases import CASES, Case, replay_one, short_epochs
from tacit.audit.mechanisms import release_bits
from tacit.audit.replay import own_registry
from tacit.audit.statistics import noise_scale_bounds
from tacit.audit.worlds import (
    Adversary,
    excessive_rows,
    largest_contribution,
    missing_rows,
    orthogonal_rows,
    switching_rows,
)
from tacit.errors import BatchTooSmall, StateInUse
from tacit.policies import registry
from tacit.policies.base import Policy
from tacit.privacy import continual
from tacit.privacy.factorization import FACTORIZATIONS
from tacit.privacy.noise import FastNoise
from tacit.shuffle import randomizer
from tacit.shuffle.calibration import calibrate
from tacit.shuffle.domains import OuterProducts
from tacit.shuffle.messages import decode_counts, encode_reports
from tacit.shuffle.parameters import SumProtocol
from tacit.shuffle.sums import sample_sum
from tacit.typing import FloatArray

Check = Callable[[], list[str]]
_EPSILON, _DELTA = 4.0, 1e-5


def replay_check(
    policy: str, settings: Sequence[Mapping[str, Any]], adversaries: Sequence[Adversary], pairs: int = 4
) -> Check:
    """Neighbours of one policy: nothing but releases differs, and they by no more than was charged."""

    def check() -> list[str]:
        case, found = CASES[policy], list[str]()
        case = Case(policy, settings, users=case.users, groups=False, absent=case.absent)
        with own_registry(), short_epochs():
            for index in range(pairs * len(adversaries)):
                outcome = replay_one(case, index, adversaries[index % len(adversaries)], _EPSILON, _DELTA, 90)
                found += outcome.divergences
                if not outcome.sound and not outcome.divergences:
                    found.append(f"measured mu is {outcome.ratio:.4g} times the charged one")
        return found

    return check


def _small_policy(seed: int | None = 5) -> Policy:
    return registry.make_policy(
        "stream-glm", dim=2, horizon=64, epsilon=_EPSILON, delta=_DELTA, theta_bound=2.0, seed=seed
    )


def _recorded(policy: Policy, draws: list[FloatArray]) -> None:
    original = policy.noise.gaussian

    def gaussian(scale: float, shape: Any) -> FloatArray:
        drawn = original(scale, shape)
        draws.append(np.ravel(drawn))
        return drawn

    policy.noise.gaussian = gaussian  # type: ignore[method-assign]


def _walk(policy: Policy, rounds: int) -> None:
    for _ in range(rounds):
        policy.update(policy.select(np.eye(2)), 1.0)


def noise_scale() -> list[str]:
    """The noise that a policy draws has the standard deviation that the ledger was told."""
    draws: list[FloatArray] = []
    for seed in range(40):
        policy = _small_policy(seed)
        _recorded(policy, draws)
        _walk(policy, 40)
    assert policy.ledger is not None
    charged = float(policy.ledger.entries[0].event.noise_sd or math.nan)
    low, high = noise_scale_bounds(np.concatenate(draws) / charged)
    return [] if low <= 1.0 <= high else [f"noise is between {low:.3f} and {high:.3f} times what was charged"]


def fresh_noise() -> list[str]:
    """No draw is used twice, restored states included."""
    draws: list[FloatArray] = []
    with own_registry(), tempfile.TemporaryDirectory() as folder:
        policy = _small_policy()
        _recorded(policy, draws)
        _walk(policy, 10)
        policy.save(Path(folder) / "state")
        policy = registry.load(Path(folder) / "state")
        _recorded(policy, draws)
        _walk(policy, 10)
    values = np.concatenate(draws)
    repeated = values.size - np.unique(values).size
    return [f"{repeated} of {values.size} noise values were used before"] if repeated else []


def resumed_once() -> list[str]:
    """Of a state, its files and their copies, one goes on."""
    found = []
    with own_registry(), tempfile.TemporaryDirectory() as folder:
        policy = _small_policy(None)
        _walk(policy, 3)
        paths = [Path(folder) / name for name in ("earlier", "first", "copy")]
        policy.save(paths[0])
        policy.save(paths[1])
        shutil.copy(paths[1], paths[2])
        alive = [policy]
        for path in paths:
            try:
                alive.append(registry.load(path))
            except StateInUse:
                continue
        going = 0
        for one in alive:
            try:
                one.select(np.eye(2))
                going += 1
            except StateInUse:
                continue
        if going != 1:
            found.append(f"{going} copies of one state went on, each with noise of its own")
    return found


def stream_reference() -> list[str]:
    """Releases are A x + B z with one z per leaf: an independent dense computation gives the same numbers."""
    found, rng, leaves = [], np.random.default_rng(3), 16
    for name in FACTORIZATIONS:
        plan = continual.plan_release(
            "checked", 2, row_bound=1.0, row_norm=1.0, mu=1.0, factorization=name, horizon=leaves, source=FastNoise(rng)
        )
        stream, rows, noise = plan.open(), rng.random((leaves, 2)), plan.source.gaussian(plan.noise_sd, (leaves, 2))
        expected = np.cumsum(rows, axis=0) + _dense_response(plan) @ noise
        for leaf in range(leaves):
            stream.leaf[:] = rows[leaf]
            continual.close_leaf(stream, noise[leaf])
            if not np.allclose(stream.released, expected[leaf], atol=1e-9):
                found.append(f"{name}: release {leaf + 1} is not the exact sum plus the noise of its nodes")
                break
    return found


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


def _protocol() -> SumProtocol:
    return calibrate(OuterProducts(2), 60, _EPSILON, _DELTA, max_bits=256)


def message_width() -> list[str]:
    """Every report that an honest device can send survives the wire, the longest included."""
    protocol = _protocol()
    most = protocol.levels + protocol.noise_bits
    counts = np.stack([most, np.zeros_like(most), most - 1, protocol.levels])
    reports = encode_reports(protocol, np.zeros((4, 16), dtype=np.uint8), counts)
    same = np.array_equal(decode_counts(protocol, reports), counts)
    return [] if same else ["the largest report does not fit its message"]


def shuffled_noise() -> list[str]:
    """Each report brings Bin(b, p) of noise to each coordinate, as was calibrated."""
    protocol, rng = _protocol(), np.random.default_rng(8)
    shares = randomizer.noise_share(protocol, 20_000, rng).astype(np.float64)
    p, b = protocol.noise_probability, protocol.noise_bits
    error = 6.0 * math.sqrt(b * p * (1.0 - p) / shares.size)
    if abs(float(shares.mean()) - b * p) > error:
        return [f"a report brings {shares.mean():.3f} ones of noise to a coordinate, {b * p:.3f} were calibrated"]
    return []


def small_batch() -> list[str]:
    """A batch below the smallest one that was calibrated is never opened."""
    protocol, rng, found = _protocol(), np.random.default_rng(8), []
    for name, release in (("sampled sum", sample_sum), ("shuffler", release_bits)):
        try:
            release(protocol, np.zeros((59, 2)), rng)
            found.append(f"{name}: 59 reports were opened, 60 are needed")
        except BatchTooSmall:
            continue
    return found


CHECKS: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "replay of joint-glm": replay_check(
            "joint-glm", ({"horizon": 40}, {"horizon": 40, "factorization": "tree"}), (orthogonal_rows, switching_rows)
        ),
        "replay of joint-glm, theory": replay_check(
            "joint-glm", ({"horizon": 40, "profile": "theory"},), (switching_rows,), pairs=6
        ),
        "replay of stream-glm": replay_check("stream-glm", ({"horizon": 40},), (largest_contribution,), pairs=10),
        "replay of joint-linucb": replay_check("joint-linucb", ({"horizon": 40},), (largest_contribution,), pairs=10),
        "replay of joint-linucb, counts": replay_check(
            "joint-linucb", ({"horizon": 40, "link": "log"},), (excessive_rows,), pairs=4
        ),
        "replay of shuffle-linucb": replay_check(
            "shuffle-linucb", ({"horizon": 60, "batch_size": 20},), (missing_rows,), pairs=6
        ),
        "noise scale": noise_scale,
        "fresh noise": fresh_noise,
        "resumed once": resumed_once,
        "stream reference": stream_reference,
        "message width": message_width,
        "shuffled noise": shuffled_noise,
        "smallest batch": small_batch,
    }
)
