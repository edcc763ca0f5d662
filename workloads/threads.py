"""Eight threads on one policy: every reward counts once, every tick happens once, every saved state is consistent.

Threads work in pairs.  One of a pair makes decisions, by ``select`` and ``select_batch``; then both submit the reward
of each of them, in the same order and at the same time, while the other pairs do the same and states are saved.  Arms
are single, so that what must have been learned is known whatever the order was: the state in memory and all saved ones
are compared with it.  Private policies run with their noise off, where raw sums are compared, and with noise.

python workloads/threads.py                     (8 threads x 20,000 submissions for every policy, some minutes)
python workloads/threads.py --submissions 2000 --policies stream-glm joint-glm
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tacit
from tacit.errors import AlreadyRewarded, CorruptState, RecoveryWarning
from tacit.estimation.linearised import SHORTEST
from tacit.linalg.packing import packed
from tacit.policies import persistence
from tacit.policies.decision import Decision
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import POLICIES, policy_class
from tacit.typing import FloatArray

Arrays = Mapping[str, npt.NDArray[Any]]
CHUNK = 50
"""Decisions that a pair hands over at once."""
_PATIENCE = 120.0


@dataclass
class Record:
    """What the threads saw, from which the right state follows; each entry is written by one thread."""

    arms: dict[int, FloatArray] = field(default_factory=dict)
    """The features of each decision's only arm."""
    calls: dict[int, int] = field(default_factory=dict)
    """Which call made each decision: those of a batch share one."""
    taken: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    """Decisions whose reward was taken in, and those where it was refused as the second one."""
    faults: list[str] = field(default_factory=list)

    def rows(self, ids: set[int]) -> FloatArray:
        """Features and rewards of decisions, sorted, as rows."""
        width = next(iter(self.arms.values())).size + 1
        table = [[*self.arms[identity], reward_of(identity)] for identity in sorted(ids)]
        return _sorted(np.array(table, dtype=np.float64).reshape(len(ids), width))


def reward_of(identity: int) -> float:
    """The reward of a decision."""
    return float(identity % 3 == 0)


class Storm:
    """Pairs of threads on one policy."""

    def __init__(self, policy: tacit.Policy, folder: Path, *, threads: int, submissions: int, seed: int) -> None:
        self.policy, self.folder = policy, folder
        self.record = Record()
        self._pairs, self._chunks, self._seed = threads // 2, max(1, submissions // CHUNK), seed
        self._handed: list[list[Decision]] = [[] for _ in range(self._pairs)]
        self._gates = [threading.Barrier(2, timeout=_PATIENCE) for _ in range(self._pairs)]
        self._numbers = iter(range(1 << 60))

    def run(self) -> list[str]:
        """Let the threads loose; then everything that is wrong, in words."""
        threads = [
            threading.Thread(target=self._work, args=(pair, member)) for pair in range(self._pairs) for member in (0, 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [*self.record.faults, *self._miscounted(), *self._inconsistent()]

    def _work(self, pair: int, member: int) -> None:
        rng = np.random.default_rng([self._seed, pair, member])
        try:
            for chunk in range(self._chunks):
                if chunk % 2 == member:
                    self._handed[pair] = self._decide(rng)
                self._gates[pair].wait()
                for decision in self._handed[pair]:
                    self._submit(decision)
                self._gates[pair].wait()
                if member == 0 and chunk % max(1, self._chunks // 4) == pair % max(1, self._chunks // 4):
                    self._attempt("save", lambda: self.policy.save(self.folder / f"state-{next(self._numbers)}"))
        except threading.BrokenBarrierError:
            self.record.faults.append(f"pair {pair} lost a thread")

    def _decide(self, rng: np.random.Generator) -> list[Decision]:
        made: list[Decision] = []
        while len(made) < CHUNK:
            users = min(int(rng.integers(1, 8)), CHUNK - len(made))
            arms = single_arms(rng, users, self.policy.setting.dim)
            decide = partial(self._one if users == 1 else self._batch, arms)
            call, decisions = next(self._numbers), self._attempt("select", decide) or []
            for decision, arm in zip(decisions, arms, strict=False):
                if decision.id in self.record.arms:
                    self.record.faults.append(f"decision {decision.id} was made twice")
                self.record.arms[decision.id], self.record.calls[decision.id] = arm[0], call
            made += decisions
        return made

    def _one(self, arms: FloatArray) -> list[Decision]:
        return [self.policy.select(arms[0])]

    def _batch(self, arms: FloatArray) -> list[Decision]:
        return [decision for decision in self.policy.select_batch(arms) if isinstance(decision, Decision)]

    def _submit(self, decision: Decision) -> None:
        try:
            self.policy.update(decision, reward_of(decision.id))
            self.record.taken.append(decision.id)
        except AlreadyRewarded:
            self.record.refused.append(decision.id)
        except Exception as error:
            self.record.faults.append(f"update of {decision.id}: {error!r}")

    def _attempt(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            self.record.faults.append(f"{what}: {error!r}")
            return None

    def _miscounted(self) -> list[str]:
        """Every decision was submitted twice: one reward taken in, one refused."""
        made, record = set(self.record.arms), self.record
        faults = [f"{len(made)} decisions, counted as {self.policy.decisions}"] * (len(made) != self.policy.decisions)
        for what, seen in (("taken", record.taken), ("refused", record.refused)):
            counts = Counter(seen)
            wrong = [identity for identity in made if counts[identity] != 1]
            if wrong:
                faults.append(f"{len(wrong)} rewards not {what} once, such as that of decision {wrong[0]}")
        return faults

    def _inconsistent(self) -> list[str]:
        """Faults of the state in memory and of all saved ones."""
        policy, files = self.policy, sorted(self.folder.glob("state-*"))
        faults = [f"at the end: {fault}" for fault in state_faults(policy, policy.snapshot().arrays, self.record)]
        for path in files:
            arrays = persistence.read(path, resumed_too=True)[1]
            faults += [f"{path.name}: {fault}" for fault in state_faults(policy, arrays, self.record)]
        for path in files[-1:]:
            try:
                loaded = _loaded(path)
            except CorruptState as error:
                return [*faults, f"{path.name}: {error}"]
            if loaded.decisions != int(persistence.read(path, resumed_too=True)[1]["pending.clock"][0]):
                faults.append(f"{path.name}: loaded with {loaded.decisions} decisions")
            loaded.select(next(iter(self.record.arms.values()))[np.newaxis])
        return faults


def single_arms(rng: np.random.Generator, users: int, dim: int) -> FloatArray:
    """One arm for each user; sums of such features and of their products are exact."""
    spacing = 2.0 ** -math.ceil(math.log2(8.0 * math.sqrt(dim)))
    return spacing * rng.integers(-8, 9, size=(users, 1, dim)).astype(np.float64)


def state_faults(policy: tacit.Policy, arrays: Arrays, record: Record) -> list[str]:
    """Where a state is not one between two calls: the clock, and what was learned by then."""
    made = int(arrays["pending.clock"][0])
    if not set(range(made)) <= set(record.arms):
        return [f"{made} decisions in the state, some of which nobody got"]
    rewarded = set(range(made)) - {int(identity) for identity in arrays["pending.ids"]}
    if not rewarded <= set(record.taken):
        return [f"{len(rewarded - set(record.taken))} rewards in the state that nobody sent"]
    calls = {record.calls[identity] for identity in range(made)}
    faults = []
    if made < len(record.arms) and record.calls[made] in calls:
        faults.append("the state has a part of a batch of decisions")
    ticks = _ticks(arrays)
    counts_users = "state.stream.closed" not in arrays or _DECISIONS in arrays  # leaves of other streams count calls
    if ticks is not None and ticks != (made if counts_users else len(calls)):
        faults.append(f"the clock has {ticks} ticks after {len(calls)} calls for {made} users")
    return faults + _learning_faults(policy, arrays, record, rewarded, made)


_DECISIONS = "state.stream.mechanism.decisions"
"""The clock of geometric leaves."""


def _ticks(arrays: Arrays) -> int | None:
    """The state's own clock, where it has one: decisions or leaves of the stream, users of batches, decisions."""
    if _DECISIONS in arrays:
        return int(arrays[_DECISIONS])
    if "state.stream.closed" in arrays:
        return int(arrays["state.stream.closed"])
    if "state.batch.end" in arrays:  # shuffle-glm, shuffle-linucb
        return int(arrays["state.batch.served"]) if arrays["state.batch.end"] > 0 else None
    for path in ("state.ticks", "state.decisions"):  # local-glm, adaprivate-ts, b-glincb
        if path in arrays:
            return int(arrays[path])
    return None


def _learning_faults(policy: tacit.Policy, arrays: Arrays, record: Record, rewarded: set[int], made: int) -> list[str]:
    """What the state learned, against the rewards of the decisions that wait no longer."""
    rows = _kept_rows(arrays)
    if rows is not None:
        expected = record.rows(rewarded & _open_batch(arrays, made))
        if rows.shape != expected.shape or not np.array_equal(_sorted(rows), expected):
            return [f"{len(rows)} rows in the state, not the {len(expected)} whose rewards came"]
        return []
    counters = {"local-glm": "reports", "ldp-linucb": "reports", "ecolog": "rewards", "random": "rewards"}
    counter = counters.get(policy.name)
    if counter is not None:
        counted = int(arrays[f"state.{counter}"])
        return [] if counted == len(rewarded) else [f"{counted} rewards counted, not {len(rewarded)}"]
    return _sum_faults(policy, arrays, record.rows(rewarded))


def _kept_rows(arrays: Arrays) -> FloatArray | None:
    """The rows in the state, features and then the reward, where it has any."""
    if "state.rows.held" not in arrays:
        return None
    kept = int(arrays["state.rows.held"])
    if "state.rows.lines" in arrays:  # shuffle-glm, shuffle-linucb
        return arrays["state.rows.lines"][:kept]
    return np.column_stack([arrays["state.rows.features"][:kept], arrays["state.rows.rewards"][:kept]])


def _open_batch(arrays: Arrays, made: int) -> set[int]:
    """Decisions whose rows are in the buffer: all, or those of the open batch."""
    if "state.batch.end" not in arrays:
        return set(range(made))
    users, end = len(arrays["state.rows.lines"]), int(arrays["state.batch.end"])
    return set(range(end - users, made)) if end > 0 else set()


def _sum_faults(policy: tacit.Policy, arrays: Arrays, rows: FloatArray) -> list[str]:
    """Sums of x x' and of r x, raw, where noise is off."""
    if isinstance(policy, PrivatePolicy) and not policy.setting.budget.unlimited:
        return []
    features, rewards = rows[:, :-1], rows[:, -1]
    weights = np.ones(len(rows))
    if policy.name == "stream-glm":  # rows are divided by their length, unless they are short
        lengths = np.linalg.norm(features, axis=1)
        weights = 1.0 / np.where(lengths >= SHORTEST, lengths, 1.0)
    gram, moment = (features * weights[:, np.newaxis]).T @ features, (weights * rewards) @ features
    if policy.name == "gloc":
        found, expected = arrays["state.matrix"], gram + policy.config.ridge_or_dim * np.eye(policy.setting.dim)
    else:
        scale, found = _weighted_sums(policy, arrays)
        expected = np.concatenate([packed(gram), scale * moment])
    error = float(np.max(np.abs(found - expected)))
    return [] if error < 1e-6 else [f"sums of rows are off by {error:.3g}"]


def _weighted_sums(policy: tacit.Policy, arrays: Arrays) -> tuple[float, FloatArray]:
    """Weight of rewards in the sums of rows, and the sums: what was released and what is open."""
    if policy.name == "adaprivate-ts":
        return policy.state.constants.reward_weight, arrays["state.released"] + arrays["state.batch"]
    scale = policy.state.reward_weight if policy.name == "joint-linucb" else policy.state.constants.scale
    return scale, arrays["state.stream.released"] + arrays["state.stream.leaf"]


def _sorted(rows: FloatArray) -> FloatArray:
    return rows[np.lexsort(rows.T)] if rows.size else rows


def _loaded(path: Path) -> tacit.Policy:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecoveryWarning)
        return tacit.load(path, recover=True)


def storm(
    name: str, *, threads: int, submissions: int, seed: int = 1, dim: int = 3, epsilon: float = math.inf
) -> list[str]:
    """Faults of one policy under ``threads`` threads that make ``submissions`` double submissions each."""
    horizon = threads // 2 * CHUNK * max(1, submissions // CHUNK)
    arguments: dict[str, Any] = {"dim": dim, "horizon": horizon, "theta_bound": 2.0, "seed": seed}
    if policy_class(name).guarantee != "none":
        arguments |= {"epsilon": epsilon, "delta": 1e-3}
    if name in ("stream-glm", "joint-linucb") and math.isinf(epsilon):
        arguments["factorization"] = "toeplitz"  # which shows plain sums where noise is off
    # Under the identity a row of stream-glm is (x x', s r x) / |x|, wherever it was linearised.
    arguments["link"] = "identity" if name == "stream-glm" else "logistic"
    policy = tacit.make_policy(name, **arguments)
    with tempfile.TemporaryDirectory() as folder:
        return Storm(policy, Path(folder), threads=threads, submissions=submissions, seed=seed).run()


def main() -> None:
    """All policies; exits with 1 on a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", nargs="+", default=list(POLICIES))
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--submissions", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    sys.setswitchinterval(1e-5)
    registry = tempfile.TemporaryDirectory()
    os.environ["TACIT_STATE_DIR"] = registry.name  # the tokens of its states are of use to nobody
    print("| policy | noise | double submissions | seconds | faults |")
    print("|---|---|---|---|---|")
    found = 0
    for name in arguments.policies:
        for epsilon in (math.inf,) if policy_class(name).guarantee == "none" else (math.inf, 4.0):
            started = time.perf_counter()
            faults = storm(
                name, threads=arguments.threads, submissions=arguments.submissions, seed=arguments.seed, epsilon=epsilon
            )
            seconds, total = time.perf_counter() - started, arguments.threads * arguments.submissions
            noise = "off" if math.isinf(epsilon) else "on"
            print(f"| {name} | {noise} | {total // 2:,} | {seconds:.1f} | {len(faults)} |", flush=True)
            for fault in faults[:5]:
                print(f"    {fault}", file=sys.stderr)
            found += len(faults)
    if found:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
