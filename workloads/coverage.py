"""Do 95% intervals hold what they are about?  Replays of simulated experiments, and private values of fixed policies.

Rewards of all arms are known in a simulation, and so is the value of every policy.  Each replay draws its users with
replacement from a population, gives each an arm by chance, and plays a policy that learns; the target is the value of
that run, the mean of what the policy as it was at each line earns of the population.  The command fails when an
interval holds its target so seldom that the chance for it would be below 0.001.

python workloads/coverage.py --replays 2000 --seed 1
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom

import tacit
from tacit.evaluation import Trial, estimates_of, make_trial, private_value, replay_pass
from tacit.evaluation.replay import METHODS
from tacit.features import Category, Flag, Number, Schema
from tacit.privacy import Randomness
from tacit.typing import FloatArray, IntArray

SCHEMA = Schema(user=[Number("age", 0, 100), Flag("smoker")], arm=[Category("drug", ["A", "B", "C"])], per_arm="drug")
SETTINGS: dict[str, tuple[dict[str, float], dict[str, Any]]] = {
    "noise off, equal shares": ({"A": 1 / 3, "B": 1 / 3, "C": 1 / 3}, {"epsilon": float("inf")}),
    "eps 8, unequal shares": ({"A": 0.5, "B": 0.3, "C": 0.2}, {"epsilon": 8.0}),
}
LINES, POPULATION = 1_200, 400
RARE = [
    (epsilon, lines, share, value)
    for epsilon in (float("inf"), 8.0, 1.0, 0.3)
    for lines, share, value in (
        (100, 0.5, 0.01),
        (100, 0.1, 0.01),
        (100, 0.5, 0.05),
        (300, 0.25, 0.05),
        (1_000, 0.25, 0.01),
        (1_000, 0.1, 0.01),
    )
]
"""Few rewards: epsilon, lines, the share of the arm, and its value."""
LEAST_EXPECTED = 0.6
"""Rewards to be expected without noise, below which no interval by a normal law can be right; not judged."""
Z, SELDOM = 1.959964, 1e-3


class World(NamedTuple):
    """A population: records of its users, their features, and the mean reward of each arm."""

    users: dict[str, Any]
    rows: FloatArray
    means: FloatArray


def make_world(rng: np.random.Generator) -> World:
    users = SCHEMA.sample_users(rng, POPULATION)
    rows = SCHEMA.encode(users, [{"drug": name} for name in "ABC"])
    theta = rng.standard_normal(SCHEMA.dim)
    theta *= 5.0 / np.linalg.norm(theta)
    return World(users, rows, np.asarray(1.0 / (1.0 + np.exp(-rows @ theta))))


def draw_trial(world: World, shares: dict[str, float], rng: np.random.Generator, lines: int) -> Trial:
    """An experiment on users drawn with replacement."""
    people, arms = rng.integers(POPULATION, size=lines), rng.choice(3, size=lines, p=list(shares.values()))
    log = {name: column[people] for name, column in world.users.items()}
    log |= {"drug": np.array(list("ABC"), dtype=object)[arms], "cured": rng.random(lines) < world.means[people, arms]}
    return make_trial(SCHEMA, log, reward="cured", shares=shares)


@dataclass
class Watched:
    """A policy, and the value that it has for the population whenever it chooses."""

    policy: Any
    world: World
    values: list[float] = field(default_factory=list)
    _seen: bytes = b""

    def __post_init__(self) -> None:
        self.arm_form, self.update, self.abandon = self.policy.arm_form, self.policy.update, self.policy.abandon
        self._rows = self.arm_form.rounds(self.world.rows)

    def select_admitted(self, rows: FloatArray) -> tacit.Decision:
        decision: tacit.Decision = self.policy.select_admitted(rows)
        state = self.policy.state
        now = state.theta.tobytes() + state.covariance.tobytes()
        if now != self._seen:
            self._seen = now
            memos = np.zeros((POPULATION, self._rows.shape[2] + 1))
            arms = self.policy._steps.choose(state, self._rows, np.zeros((POPULATION, 0)), memos)
            self._value = self._earned(arms)
        self.values.append(self._value)
        return decision

    def _earned(self, arms: IntArray) -> float:
        return float(np.take_along_axis(self.world.means, arms[:, np.newaxis], 1).mean())


def replays(setting: str, count: int, seed: int, lines: int = LINES) -> dict[str, int]:
    """How often the interval of each method held the value of its run."""
    shares, options = SETTINGS[setting]
    world, held = make_world(np.random.default_rng([seed, 0])), dict.fromkeys(METHODS, 0)
    for number in range(count):
        rng = np.random.default_rng([seed, 1, number])
        trial = draw_trial(world, shares, rng, lines)
        policy = tacit.make_policy("stream-glm", features=SCHEMA, delta=1e-5, theta_bound=5.0, seed=number, **options)
        watched = Watched(policy, world)
        played = replay_pass(trial, watched, np.arange(lines), rng.random(lines))  # type: ignore[arg-type]
        values = np.array(watched.values)
        for method, found in estimates_of(trial, played).items():
            target = values[played.learned].mean() if method == "replay" else values.mean()
            held[method] += bool(abs(found.value - target) <= Z * found.error)
    return held


def private_values(epsilon: float, count: int, seed: int, lines: int = LINES) -> dict[str, int]:
    """How often the interval of a private value held what the fixed policy earns, by policy."""
    world, shares = make_world(np.random.default_rng([seed, 0])), {"A": 0.5, "B": 0.3, "C": 0.2}
    theta = np.random.default_rng([seed, 2]).standard_normal(SCHEMA.dim)
    chosen = (world.rows @ theta).argmax(axis=1)[:, np.newaxis]
    policies: dict[str, tuple[Any, float]] = {
        "B": ("B", float(world.means[:, 1].mean())),
        "uniform": ("uniform", float(world.means.mean())),
        "theta": (theta, float(np.take_along_axis(world.means, chosen, 1).mean())),
    }
    held = dict.fromkeys(policies, 0)
    for number in range(count):
        trial = draw_trial(world, shares, np.random.default_rng([seed, 3, number]), lines)
        for name, (policy, value) in policies.items():
            noise = Randomness.make(number, "fast", private=True)
            found = private_value(trial, policy, epsilon=epsilon, delta=1e-5, randomness=noise)
            held[name] += found.low <= value <= found.high
    return held


def rare_rewards(epsilon: float, lines: int, count: int, seed: int, share: float = 0.25, value: float = 0.01) -> int:
    """How often the interval held the value of an arm given with probability ``share``, which few rewards tell of."""
    schema, shares, held = Schema(arm=[Category("drug", ["A", "B"])]), {"A": share, "B": 1.0 - share}, 0
    for number in range(count):
        rng = np.random.default_rng([seed, 4, number])
        arms, cured = rng.choice(np.array(["A", "B"], dtype=object), lines, p=list(shares.values())), rng.random(lines)
        trial = make_trial(schema, {"drug": arms, "cured": cured < value}, reward="cured", shares=shares)
        noise = Randomness.make(number, "fast", private=np.isfinite(epsilon))
        found = private_value(trial, "A", epsilon=epsilon, delta=1e-5, randomness=noise)
        held += found.low <= value <= found.high
    return held


def too_seldom(held: int, count: int) -> bool:
    """Whether 95% intervals that are right would hold as seldom as this with probability below `SELDOM`."""
    return bool(binom.cdf(held, count, 0.95) < SELDOM)


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay and print; 1 when some interval holds too seldom."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replays", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--private", action="store_true", help="private values only, which are quick")
    given = parser.parse_args(arguments)
    unjudged: set[str] = set()
    found = {
        f"{name}, {method}": held
        for name in ([] if given.private else SETTINGS)
        for method, held in replays(name, given.replays, given.seed).items()
    }
    for epsilon in (1.0, 4.0):
        each = private_values(epsilon, given.replays, given.seed)
        found |= {f"private value of {name}, eps {epsilon:g}": held for name, held in each.items()}
    for epsilon, lines, share, value in RARE:
        name = f"private value {value:g} of an arm given to {share:g}, {lines:,} lines, eps {epsilon:g}"
        found[name] = rare_rewards(epsilon, lines, given.replays, given.seed, share, value)
        if np.isinf(epsilon) and lines * share * value < LEAST_EXPECTED:
            unjudged.add(name)
    failed = {name for name, held in found.items() if name not in unjudged and too_seldom(held, given.replays)}
    print(f"| 95% interval, {given.replays} replays, seed {given.seed} | held |\n|---|---|")
    for name, held in found.items():
        remark = " (too seldom)" if name in failed else " (not judged)" if name in unjudged else ""
        print(f"| {name} | {held / given.replays:.1%}{remark} |")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
