"""What a crash costs: regret of the second half after going on, after a recovery, and after starting anew.

Each run plays half of its rounds and saves.  Then the second half is played three times, on the same contexts: by the
policy itself, undisturbed; by one recovered from the file (``tacit.load(path, recover=True)``); by a new one whose
horizon is what is left.  The share of the regret saved by what was learned before that a recovery keeps is

    (anew - recovered) / (anew - undisturbed),

with means over runs, and its standard error from the runs' paired differences (the delta method).

python workloads/recovery.py --runs 20 --seed 1
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import tacit
from tacit.environments import Block
from tacit.errors import RecoveryWarning
from tacit.experiments.engines import make_engine
from tacit.experiments.spec import Experiment
from tacit.typing import FloatArray

NAMES = ("stream-glm", "joint-glm", "joint-linucb", "shuffle-glm", "shuffle-linucb", "local-glm")
TARGET = 0.9


@dataclass(frozen=True)
class Crash:
    """Regrets of the second half over runs, one line each: undisturbed, recovered, anew; shape (runs, 3)."""

    regrets: FloatArray

    @property
    def learned(self) -> float:
        """How many standard errors the policy that went on is better than a new one: below 2 nothing was learned."""
        gain = self.regrets[:, 2] - self.regrets[:, 0]
        return float(np.mean(gain) / (np.std(gain, ddof=1) / np.sqrt(gain.size)))

    @property
    def share(self) -> float:
        """Share of the saved regret that a recovery keeps."""
        undisturbed, recovered, anew = np.mean(self.regrets, axis=0)
        return float((anew - recovered) / (anew - undisturbed))

    @property
    def error(self) -> float:
        """Standard error of ``share``."""
        undisturbed, recovered, anew = self.regrets.T
        residual = (anew - recovered) - self.share * (anew - undisturbed)
        scale = abs(float(np.mean(anew - undisturbed))) * np.sqrt(residual.size)
        return float(np.std(residual, ddof=1) / scale)


def setting(policy: str, horizon: int = 10_000) -> Experiment:
    """The setting of the table."""
    return Experiment(policy, "logistic", 5, 20, horizon, 3.5, epsilon=4.0, delta=1e-5)


def crash(experiment: Experiment, runs: int, seed: int, jobs: int = 1) -> Crash:
    """Crash ``runs`` runs in the middle."""
    children = np.random.SeedSequence(seed).spawn(runs)
    tasks = [(experiment, run, child) for run, child in enumerate(children)]
    found = dict(make_engine("joblib", jobs).finished(one_crash, tasks))
    return Crash(np.array([found[run] for run in range(runs)]))


def one_crash(experiment: Experiment, run: int, seed: np.random.SeedSequence) -> tuple[int, tuple[float, ...]]:
    """The run's number, and its regrets of the second half: undisturbed, recovered, anew."""
    instance, noise = seed.spawn(2)
    first, second = _halves(experiment, np.random.default_rng(instance))
    seeds = [int(word) for word in noise.generate_state(2)]
    policy = experiment.make_policy(seeds[0])
    regret(policy, first)
    with _own_registry() as folder:
        policy.save(folder / "state")
        undisturbed = regret(policy, second)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecoveryWarning)
            recovered = regret(tacit.load(folder / "state", recover=True), second)
    left = replace(experiment, horizon=experiment.horizon - experiment.horizon // 2)
    return run, (undisturbed, recovered, regret(left.make_policy(seeds[1]), second))


def regret(policy: tacit.Policy, block: Block) -> float:
    """Play all rounds of ``block``."""
    arms = policy.play(block.contexts, block.rewards)
    return float(np.sum(block.regrets[np.arange(arms.size), arms]))


def _halves(experiment: Experiment, rng: np.random.Generator) -> tuple[Block, Block]:
    blocks = list(experiment.environment().blocks(rng))
    whole = [np.concatenate(parts) for parts in zip(*blocks, strict=True)]
    half = experiment.horizon // 2
    return Block(*(part[:half] for part in whole)), Block(*(part[half:] for part in whole))


@contextmanager
def _own_registry() -> Iterator[Path]:
    """A folder for the file and for the tokens of resumed states, which nobody needs afterwards."""
    before = os.environ.get("TACIT_STATE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TACIT_STATE_DIR"] = folder
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ["TACIT_STATE_DIR"]
            else:
                os.environ["TACIT_STATE_DIR"] = before


def main() -> None:
    """Crash every policy and print what is left; exits with 1 when a policy that learns keeps surely too little."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", nargs="+", default=list(NAMES))
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--horizon", type=int, default=10_000)
    arguments = parser.parse_args()
    print(f"| T = {arguments.horizon:,}, {arguments.runs} runs | undisturbed | recovered | anew | share kept |")
    print("|---|---|---|---|---|")
    short = []
    for name in arguments.policies:
        result = crash(setting(name, arguments.horizon), arguments.runs, arguments.seed, arguments.jobs)
        means = " | ".join(f"{mean:.1f}" for mean in np.mean(result.regrets, axis=0))
        learned = result.learned >= 2.0
        kept = f"{result.share:.2f} ± {result.error:.2f}" if learned else "has learned nothing"
        print(f"| {name} | {means} | {kept} |", flush=True)
        if learned and result.share + 2.0 * result.error < TARGET:
            short.append(name)
    if short:
        raise SystemExit(f"less than {TARGET} of what was saved is kept by {', '.join(short)}")


if __name__ == "__main__":
    main()
