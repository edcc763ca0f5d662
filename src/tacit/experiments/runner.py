"""Runs of experiments: in parallel, reproducible, and resumable.

Each run has its own seeds, made from (seed, run) alone: rows do not depend on the number of jobs, and all policies
meet the same instances.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tacit.environments import NEVER, ArrivalKind, Block, EnvironmentSetting
from tacit.errors import ExpiredDecision
from tacit.experiments.engines import make_engine
from tacit.experiments.results import Row, RunJournal, RunResult, regret_curve, row, with_gains
from tacit.experiments.spec import Experiment
from tacit.extensions import Extension, load_again, load_modules
from tacit.policies.policy import Policy
from tacit.policies.private_policy import PrivatePolicy
from tacit.typing import FloatArray, IntArray


class Played(NamedTuple):
    """Regrets, rewards and cost of one run."""

    regrets: FloatArray
    rewards: FloatArray
    us_per_round: float
    """Time of the policy's calls alone, drawing of contexts, rewards and delays left out."""
    epsilon_spent: float | None


def run_once(experiment: Experiment, seed: int, run: int) -> RunResult:
    """Play one run from its own seeds, and keep its curve."""
    played = play_once(experiment, seed, run)
    return RunResult(regret_curve(played.regrets), played.us_per_round, played.epsilon_spent)


def play_once(experiment: Experiment, seed: int, run: int) -> Played:
    """Play one run from its own seeds: regret and reward of every round."""
    world_seed, policy_seed, delay_seed = np.random.SeedSequence([seed, run]).spawn(3)
    policy = experiment.make_policy(int(policy_seed.generate_state(1, np.uint64)[0]))
    world = experiment.environment()
    delivery = Delivery(policy, experiment.arrivals(), world.setting, np.random.default_rng(delay_seed))
    regrets, rewards = np.empty(experiment.horizon), np.empty(experiment.horizon)
    played = 0
    for block in world.blocks(np.random.default_rng(world_seed)):
        arms = delivery.play(block)
        rounds, chosen = slice(played, played + arms.size), (np.arange(arms.size), arms)
        regrets[rounds], rewards[rounds] = block.regrets[chosen], block.rewards[chosen]
        played += arms.size
    spent = policy.ledger.epsilon_spent if isinstance(policy, PrivatePolicy) else None
    return Played(regrets, rewards, 1e6 * delivery.seconds / experiment.horizon, spent)


class Delivery:
    """Plays blocks of rounds and reports every reward when it is due; what is due after the last round is dropped."""

    def __init__(
        self, policy: Policy, kind: ArrivalKind, setting: EnvironmentSetting, rng: np.random.Generator
    ) -> None:
        self._policy = policy
        self._kind = kind
        self._setting = setting
        self._rng = rng
        self._round = 0
        self.seconds = 0.0
        """Time spent in calls of the policy."""
        self._due: dict[int, list[tuple[int, float]]] = {}
        """By the round before which they are reported: decisions and their rewards, oldest decision first."""

    def play(self, block: Block) -> IntArray:
        """Play a block and return the arms."""
        if self._kind.at_once:
            started = time.perf_counter()
            arms = self._policy.play(block.contexts, block.rewards)
            self.seconds += time.perf_counter() - started
            return arms
        delays = self._kind.delays(self._rng, block.rewards, self._setting)
        arms = np.empty(len(delays), dtype=np.int64)
        started = time.perf_counter()
        admitted = self._policy.arm_form.rounds(block.contexts)  # what a schema encoded is taken here too
        self.seconds += time.perf_counter() - started
        for t in range(arms.size):
            started = time.perf_counter()
            self._report()
            decision = self._policy.select_admitted(admitted[t : t + 1])
            self.seconds += time.perf_counter() - started
            arm = arms[t] = decision.arm
            delay = delays.item(t, arm)
            if delay != NEVER:
                due = self._due.setdefault(self._round + delay, [])
                due.append((decision.id, block.rewards.item(t, arm)))
            self._round += 1
        return arms

    def _report(self) -> None:
        for decision, reward in self._due.pop(self._round, ()):
            with suppress(ExpiredDecision):  # the policy was told not to wait so long
                self._policy.update(decision, reward)


def prepare(experiment: Experiment, rounds: int = 1024) -> None:
    """Make the policy and play its first rounds, so that bad settings stop here."""
    policy = experiment.make_policy(0)
    experiment.arrivals()
    if rounds > 0:
        block = next(experiment.environment().blocks(np.random.default_rng(0)))
        policy.play(block.contexts[:rounds], block.rewards[:rounds])


def run_all(
    experiments: list[Experiment],
    *,
    runs: int,
    seed: int,
    jobs: int = 1,
    engine: str = "joblib",
    journal: Path | None = None,
    on_run: Callable[[Experiment], None] = lambda _: None,
) -> list[Row]:
    """Run all experiments and return their rows in order; after Ctrl-C, rows of the runs that were finished."""
    kept = RunJournal(journal)
    results: dict[tuple[int, int], RunResult] = {}
    tasks = []
    for run in range(runs):
        for position, experiment in enumerate(experiments):
            found = kept.find(experiment, seed, run)
            if found is None:
                tasks.append((load_modules(experiment.modules), experiment, position, seed, run))
            else:
                results[position, run] = found
                on_run(experiment)
    try:
        for position, run, result in make_engine(engine, jobs).finished(_run_task, tasks):
            results[position, run] = result
            kept.add(experiments[position], seed, run, result)
            on_run(experiments[position])
    except KeyboardInterrupt:
        pass
    rows = [
        row(experiment, [results[i, run] for run in range(runs) if (i, run) in results], seed)
        for i, experiment in enumerate(experiments)
        if any((i, run) in results for run in range(runs))
    ]
    return with_gains(rows)


def _run_task(
    modules: tuple[Extension, ...], experiment: Experiment, position: int, seed: int, run: int
) -> tuple[int, int, RunResult]:
    load_again(modules)
    return position, run, run_once(experiment, seed, run)
