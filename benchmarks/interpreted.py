"""Interpreted and compiled runs give the same bits: every policy plays the same rounds both ways.

A policy starts interpreted and goes on compiled, so that the two must not differ in anything.  For each case one line
says whether the arms and every array of the state are equal to the bit, or else what differs first.

    python benchmarks/interpreted.py                          # 2,000 rounds of every case, about two minutes
    python benchmarks/interpreted.py --rounds 300 gloc        # cases whose names begin with these words
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import tacit
from tacit._compile import compile_now
from tacit.policies.registry import POLICIES, policy_class
from tacit.privacy.noise import ExactNoise, Shape
from tacit.privacy.randomness import Randomness
from tacit.typing import FloatArray

ROUNDS, ARMS, DIM, SEED = 2000, 5, 3, 7
OTHER_LINKS = {"probit": 1.0, "log": 5.0, "identity": 1.0}
"""Links besides the logistic one, and the largest reward that is drawn for each."""


@dataclass(frozen=True)
class Case:
    """A policy and what is special about it."""

    policy: str
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return " ".join([self.policy, *(f"{key}={value}" for key, value in self.fields.items())])

    @property
    def private(self) -> bool:
        return policy_class(self.policy).guarantee != "none"


@dataclass(frozen=True)
class Outcome:
    """The arms, and a digest of each array of the state."""

    arms: list[int]
    arrays: dict[str, str]

    def difference(self, other: Outcome) -> str:
        """What differs first; empty if nothing does."""
        for t, (mine, theirs) in enumerate(zip(self.arms, other.arms, strict=True)):
            if mine != theirs:
                return f"the arm of round {t}"
        names = sorted(set(self.arrays) | set(other.arrays))
        return ", ".join(name for name in names if self.arrays.get(name) != other.arrays.get(name))


def all_cases() -> list[Case]:
    """Every policy; then other links, a base rate, mechanisms, noise on a grid, unknown horizons, rewards by age."""
    cases = [Case(name) for name in POLICIES]
    for link in OTHER_LINKS:
        cases += [Case(name, {"link": link}) for name in POLICIES if link in policy_class(name).links]
    cases += [Case(name, {"base_rate": 0.08}) for name in POLICIES]
    streams = ("stream-glm", "joint-glm", "joint-linucb")
    cases += [Case(name, {"factorization": kind}) for kind in ("toeplitz", "tree") for name in streams]
    cases += [Case(name, {"noise": "exact"}) for name in (*streams, "local-glm")]
    cases += [Case(name, {"noise": "exact", "factorization": "tree"}) for name in streams]
    cases += [Case(name, {"horizon": None}) for name in streams]
    cases += [Case(name, {"horizon": None, "factorization": "toeplitz", "first_epoch": 64}) for name in streams]
    return cases + [Case(name, {"reward_age": 40}) for name in streams]


class SeededGridNoise(ExactNoise):
    """Noise on the grid of exact noise that can be drawn again: rounded, and so no privacy."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = np.random.default_rng(seed)

    def gaussian(self, scale: float, shape: Shape) -> FloatArray:
        grid = self.grid or 1.0
        return grid * self.integers(scale / grid, shape)

    def integers(self, parameter: float, shape: Shape) -> FloatArray:
        return np.asarray(np.rint(parameter * self._rng.standard_normal(shape)))


def make(case: Case, rounds: int) -> tacit.Policy:
    """The policy of a case."""
    fields: dict[str, Any] = {"dim": DIM, "horizon": rounds, "theta_bound": 3.0, "seed": SEED}
    fields |= {"epsilon": 4.0, "delta": 1e-5} if case.private else {}
    if case.fields.get("link") in ("log", "identity"):
        fields["theta_bound"] = 1.0
    if case.fields.get("noise") == "exact":
        drawn = Randomness.make(SEED, None, private=True)
        fields["randomness"] = replace(drawn, ticks=SeededGridNoise(1), events=SeededGridNoise(2))
    return tacit.make_policy(case.policy, **(fields | case.fields))


def run(case: Case, rounds: int) -> Outcome:
    """Play a case in this process."""
    policy, rng = make(case, rounds), np.random.default_rng(SEED)
    contexts = rng.standard_normal((rounds, ARMS, DIM))
    contexts *= 0.999 / np.maximum(1.0, np.linalg.norm(contexts, axis=2, keepdims=True))
    good = contexts @ np.array([2.0, -1.0, 0.5]) > rng.standard_normal((rounds, ARMS))
    rewards = OTHER_LINKS.get(case.fields.get("link", ""), 1.0) * good
    arms = []
    for arm_set, paid in zip(contexts, rewards, strict=True):
        decision = policy.select(arm_set)
        policy.update(decision, float(paid[decision.arm]))
        arms.append(decision.arm)
    arrays = {name: _digest(array) for name, array in policy.snapshot().arrays.items()}
    return Outcome(arms, arrays)


def _digest(array: Any) -> str:
    values = np.asarray(array)
    return hashlib.sha256(f"{values.dtype} {values.shape} ".encode() + values.tobytes()).hexdigest()


def run_interpreted(cases: Iterable[Case], rounds: int) -> list[Outcome]:
    """Play cases in one process of its own, without compilation."""
    names = [case.name for case in cases]
    command = [sys.executable, __file__, "--outcomes", "--rounds", str(rounds), "--exactly", *names]
    environment = os.environ | {"TACIT_COMPILE": "0"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return [Outcome(**outcome) for outcome in json.loads(done.stdout)]


def main() -> None:
    compile_now()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases whose names begin like this; all if there are none")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--exactly", action="store_true", help="names are whole names")
    parser.add_argument("--outcomes", action="store_true", help="play in this process alone and print what came out")
    given = parser.parse_args()
    if given.exactly:
        by_name = {case.name: case for case in all_cases()}
        cases = [by_name[name] for name in given.names]
    else:
        cases = [case for case in all_cases() if not given.names or case.name.startswith(tuple(given.names))]
    if given.outcomes:
        print(json.dumps([vars(run(case, given.rounds)) for case in cases]))
        return
    for case in cases:
        difference = run(case, given.rounds).difference(run_interpreted([case], given.rounds)[0])
        print(f"{case.name:64s} {'differs: ' + difference if difference else 'same'}", flush=True)


if __name__ == "__main__":
    main()
