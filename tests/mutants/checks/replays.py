"""Checks by replay: neighbours differ in their releases only, and by no more than was charged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tacit.audit.attacks import replay_one
from tacit.audit.cases import CASES, DRIVES, Case
from tacit.audit.replay import own_registry
from tacit.audit.worlds import (
    Adversary,
    UserRow,
    largest_contribution,
    late_rows,
    missing_rows,
    opposite_rows,
    orthogonal_rows,
    switching_rows,
    unit,
)
from tacit.policies.private_policy import PrivatePolicy

Check = Callable[[], list[str]]
EPSILON, DELTA = 4.0, 1e-5


def _replayed(case: Case, pairs: int) -> Check:
    def check() -> list[str]:
        found: list[str] = []
        with own_registry():
            for index in range(pairs):
                outcome = replay_one(case, index, case.turn(index), EPSILON, DELTA, 90)
                found += outcome.divergences
                if not outcome.sound and not outcome.divergences:
                    kind, ratio = max({"all": outcome.ratio, **outcome.kinds}.items(), key=lambda item: item[1])
                    found.append(f"measured mu is {ratio:.4g} times the charged one ({kind})")
                if found:
                    break
        return found

    return check


def _case(policy: str, settings: Sequence[Mapping[str, Any]], adversaries: Sequence[Adversary]) -> Case:
    known = CASES[policy]
    return replace(known, settings=settings, adversaries=adversaries, groups=False)


def late_counts(policy: PrivatePolicy, rng: np.random.Generator, arms: int) -> tuple[UserRow, UserRow]:
    """An arm and its opposite, both paid in full a few decisions later."""
    x, rewards = np.tile(unit(rng, policy.setting.dim), (arms, 1)), np.full(arms, policy.setting.reward_bound)
    return UserRow(x, rewards, delay=4), UserRow(-x, rewards, delay=2)


_TWO_HORIZONS: Final = ({"horizon": 40}, {"horizon": 40, "factorization": "tree"})
REPLAY_CHECKS: Final[Mapping[str, Check]] = {
    "replay of joint-glm": _replayed(_case("joint-glm", _TWO_HORIZONS, (orthogonal_rows, switching_rows)), 8),
    "replay of joint-glm, theory": _replayed(
        _case("joint-glm", ({"horizon": 40, "profile": "theory"},), (switching_rows,)), 24
    ),
    "replay of joint-glm, both optimizers": _replayed(DRIVES["joint-glm"][0], 6),
    "replay of joint-glm, movers": _replayed(DRIVES["joint-glm"][1], 3),
    "replay of stream-glm": _replayed(_case("stream-glm", ({"horizon": 40},), (largest_contribution,)), 10),
    "replay of stream-glm, structure": _replayed(
        _case("stream-glm", ({"horizon": 40, "dim": 6, "blocks": 3},), (largest_contribution,)), 10
    ),
    "replay of stream-glm, absent rewards": _replayed(
        _case("stream-glm", ({"horizon": 40},), (missing_rows, late_rows)), 4
    ),
    "replay of stream-glm, ends of epochs": _replayed(
        _case("stream-glm", ({"horizon": None, "factorization": "toeplitz"},), (largest_contribution,)), 5
    ),
    "replay of joint-linucb": _replayed(
        _case("joint-linucb", ({"horizon": 40, "factorization": "toeplitz"},), (largest_contribution,)), 10
    ),
    "replay of joint-linucb, groups": _replayed(
        replace(_case("joint-linucb", ({"horizon": 40},), (orthogonal_rows,)), groups=True), 8
    ),
    "replay of joint-linucb, counts": _replayed(
        _case("joint-linucb", ({"horizon": 40, "link": "log"},), (opposite_rows,)), 4
    ),
    "replay of stream-glm, late counts": _replayed(
        _case("stream-glm", ({"horizon": 40, "link": "log"},), (late_counts,)), 4
    ),
    "replay of stream-glm, kept counts": _replayed(
        _case("stream-glm", ({"horizon": 40, "link": "log", "reward_age": 8},), (late_counts,)), 4
    ),
    "replay of shuffle-linucb": _replayed(
        _case("shuffle-linucb", ({"horizon": 60, "batch_size": 20},), (missing_rows,)), 6
    ),
}
