"""Neighbours that are played through a service: named ones, those at which a charge is attained, and random ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tacit.audit.services import Script, Step, Visitor
from tacit.typing import FloatArray

WAIT: Final = 10.0
"""Seconds for which rewards are waited for, unless a case says otherwise."""
HOUR: Final = 3600.0
TIGHT: Final = 0.95
"""Share of the charge that is reached where it is attained."""
_BUDGET: Final = {"epsilon": 1.0, "delta": 1e-6}
_ARMS: Final = 2


@dataclass(frozen=True)
class ServiceCase:
    """A pair of worlds, and what it is about."""

    script: Callable[[], Script]
    about: str
    tight: bool = False
    """Whether the charge is attained: the measured shift is at least `TIGHT` of it."""
    still: bool = False
    """Whether the neighbours are to differ in nothing at all that is released."""


def _same(vector: tuple[float, ...]) -> FloatArray:
    """Equal arms, so that the choice makes no difference."""
    return np.tile(np.asarray(vector), (_ARMS, 1))


_FIRST, _OPPOSITE, _SECOND = _same((1.0, 0.0)), _same((-1.0, 0.0)), _same((0.0, 1.0))
_CROWD: Final = Visitor(_FIRST, None, None)
"""A user whose reward never comes."""


def _crowd(count: int, first: int = 0) -> dict[int, Visitor]:
    return dict.fromkeys(range(first, first + count), _CROWD)


# Rewards that would move others' rows


def batch_falls_due(size: int = 995, group: int = 1, *, missing: bool = False) -> Script:
    """One reward comes just before or just after a batch of others is due, and then users ask again.

    With ``missing`` it comes just after, or never.  The sizes in use are such that the first decision afterwards (the
    second one, in groups of two) closes a leaf.
    """
    replaced, wait = size, 600.0
    rows = _crowd(replaced + 41)
    batches = [tuple(range(start, min(start + 1_000, size))) for start in range(0, size, 1_000)]
    steps = [Step(1.0, "ask", users) for users in batches]
    steps += [Step(100.0, "ask", (replaced,))]
    steps += [Step(1.0 + wait + 0.001, "ask", (user,)) for user in range(replaced + 1, replaced + 41)]
    early, late = (Visitor(_FIRST, 1.0, 1.0 + wait - 100.0 + delay) for delay in (-1e-4, 1e-4))
    pair = (replace(late, delay=None), late) if missing else (early, late)
    return Script(_body(reward_wait=wait, default_reward=0.0), rows, steps, replaced, pair, group)


def crash_after_a_reward(
    *, wait: float = 24.0, crash: float = 13.0, rewards: tuple[float, float] = (12.9, 2.0), beats: bool = False
) -> Script:
    """A crash in both worlds, and before it one reward, whose time differs between the worlds.  Times are in hours.

    With ``beats`` the service has had some in between.
    """
    users = 300
    rows = _crowd(users + 41)
    steps = [Step(HOUR * user / users, "ask", (user,)) for user in range(users)]
    if beats:
        steps += [Step(0.25 * HOUR * beat, "tick") for beat in range(5, math.ceil(4.0 * crash))]
    steps += [Step(crash * HOUR, "crash")]
    steps += [Step((crash + wait / 2.0) * HOUR, "ask", (user,)) for user in range(users, users + 41)]
    asked = steps[users - 1].time
    early, late = (Visitor(_FIRST, 1.0, hours * HOUR - asked) for hours in rewards)
    return Script(_body(reward_wait=wait * HOUR, default_reward=0.0), rows, steps, users - 1, (early, late))


def id_is_asked_for_again() -> Script:
    """A reward comes late, the service crashes, and another one asks again under an id that was nearly forgotten."""
    rows = _crowd(60)
    steps = [Step(float(user), "ask", (user,)) for user in range(31)]
    steps += [Step(31.0 + 2.0 * WAIT, "crash"), Step(31.0 + 2.0 * WAIT, "ask", (12,))]
    steps += [Step(32.0 + 2.0 * WAIT + user, "ask", (user,)) for user in range(31, 60)]
    late, never = Visitor(_FIRST, 1.0, 1.9 * WAIT), Visitor(_FIRST, 1.0, None)
    return Script(_body(event_memory=2.0 * WAIT), rows, steps, 29, (late, never))


def ids_are_to_be_deleted(size: int = 995) -> Script:
    """A reward comes between two decisions or behind them, while ids of others are to be deleted; then the crash.

    With the reward between them the two decisions are two commits, and more ids are deleted.  If the beat behind them
    depended on that, the clock would go on from another moment, and others be due at another decision.
    """
    old, replaced = 50, 50 + size
    asked = [(1.0, range(old)), (8.0, range(old, replaced)), (10.0, range(replaced, replaced + 1))]
    steps = [step for time, users in asked for step in (Step(time, "ask", tuple(users)), Step(time, "tick"))]
    steps += [Step(11.01, "ask", (replaced + 1,)), Step(11.02, "ask", (replaced + 2,))]
    steps += [Step(11.25, "tick"), Step(12.0, "crash")]
    due = 12.0 + 8.0 + WAIT - 11.25  # if the clock goes on from the beat
    steps += [Step(due + 0.001 * (number + 11), "ask", (replaced + 3 + number,)) for number in range(57)]
    between, behind = Visitor(_FIRST, 1.0, 1.015), Visitor(_FIRST, 1.0, 1.03)
    return Script(_body(default_reward=0.0), _crowd(replaced + 60), steps, replaced, (between, behind), group=2)


def rewards_before_a_window_is_full() -> Script:
    """The reward window is full: whether one more decision is taken follows from the clock alone."""
    rows = _crowd(60) | {user: Visitor(_SECOND, 1.0, 0.5) for user in range(0, 60, 3)}
    steps = [Step(0.9 * user, "ask", (user,)) for user in range(60)]
    soon, late = Visitor(_FIRST, 1.0, 0.1), Visitor(_FIRST, 1.0, 1.5 * WAIT)
    body = _body(reward_window=8, hold=False, default_reward=0.5)
    return Script(body, rows, steps, 4, (soon, late), group=3)


def group_that_waits(size: int = 497) -> Script:
    """A decision, which closes a leaf, arrives just before many others are due.

    A reward lets its group be carried out at once; without it the group waits for a decision that comes after they are.
    """
    replaced, due = size, 1.0 + WAIT
    steps = [Step(1.0, "ask", tuple(range(size))), Step(1.0, "tick"), Step(5.0, "ask", (replaced,)), Step(5.0, "tick")]
    times = [due + 0.001 * (number - 0.5) for number in range(40)]
    steps += [Step(time, "ask", (replaced + 1 + number,)) for number, time in enumerate(times)]
    soon, never = Visitor(_FIRST, 1.0, due - 5.0 - 0.0003), Visitor(_FIRST, 1.0, None)
    return Script(_body(default_reward=0.0), _crowd(size + 41), steps, replaced, (soon, never), group=2)


# Charges that are attained


def _tight(neighbours: tuple[Visitor, Visitor], users: int = 260, delay: float = 0.5, **terms: Any) -> Script:
    """The first user is replaced, and enough others follow that the leaf's column has nearly its whole norm."""
    rows = {user: Visitor((_FIRST, _SECOND)[user % 2], float(user % 4 < 2), delay) for user in range(users)}
    late = 60
    steps = [Step(1.0 + user, "ask", (user,)) for user in range(late)]
    steps += [Step(1.0 + late + WAIT, "ask", tuple(range(late, users))), Step(2.0 + late + WAIT, "look")]
    return Script(_body(head_start=0.0, **({"epsilon": 4.0} | terms)), rows, steps, 0, neighbours, group=3)


_PAID: Final = Visitor(_FIRST, 1.0, 0.5)
SERVICE_CASES: Final[Mapping[str, ServiceCase]] = MappingProxyType(
    {
        "a batch falls due": ServiceCase(
            batch_falls_due, "a reward just before or after 995 others are due", still=True
        ),
        "a batch falls due, groups": ServiceCase(
            lambda: batch_falls_due(994, group=2, missing=True), "a reward between, or none: other groups", still=True
        ),
        "a batch is due, one reward or none": ServiceCase(
            lambda: batch_falls_due(missing=True), "a reward just after 995 others are due, or none", still=True
        ),
        "5,000 fall due": ServiceCase(
            lambda: batch_falls_due(5_042), "more rows than fit into one transaction", still=True
        ),
        "crash after a reward": ServiceCase(
            crash_after_a_reward, "a crash at 13 h, a reward at 12.9 h or 2 h", still=True
        ),
        "crash when others are due": ServiceCase(
            lambda: crash_after_a_reward(wait=2.0, crash=3.5, rewards=(2.9, 1.5)),
            "a crash at 3.5 h, a reward before or after others are due",
            still=True,
        ),
        "crash, with beats": ServiceCase(
            lambda: crash_after_a_reward(beats=True), "a crash at 13 h, beats before it", still=True
        ),
        "an id is asked for again": ServiceCase(id_is_asked_for_again, "a late reward, a crash, an old id", still=True),
        "ids are to be deleted": ServiceCase(
            ids_are_to_be_deleted, "a reward between decisions or behind, a beat, a crash", still=True
        ),
        "full window": ServiceCase(rewards_before_a_window_is_full, "no more decisions than can wait"),
        "a group that waits": ServiceCase(
            group_that_waits, "decisions that are carried out after others are due", still=True
        ),
        "arms": ServiceCase(lambda: _tight((_PAID, Visitor(_OPPOSITE, 1.0, 0.5))), "opposite arms", tight=True),
        "reward": ServiceCase(lambda: _tight((_PAID, Visitor(_FIRST, 0.0, 0.5))), "1 and 0", tight=True),
        "missing reward": ServiceCase(
            lambda: _tight((_PAID, Visitor(_FIRST, 1.0, None)), default_reward=0.0), "1, and none in time", tight=True
        ),
        "delay, without hold": ServiceCase(
            lambda: _tight((_PAID, Visitor(_FIRST, 1.0, 55.0)), hold=False, reward_wait=56.0, scale=0.2),
            "at once, and after 55 decisions",
            tight=True,
        ),
        "delay of all, without hold": ServiceCase(
            lambda: _tight((_PAID, Visitor(_FIRST, 1.0, 55.0)), delay=1.5, hold=False, reward_wait=56.0, scale=0.2),
            "others' rewards come between decisions",
            tight=True,
        ),
        "delay, with hold": ServiceCase(
            lambda: _tight((_PAID, Visitor(_FIRST, 1.0, 0.99 * WAIT))), "early and late moves nothing", still=True
        ),
    }
)


def _body(**terms: Any) -> dict[str, Any]:
    return {"policy": "stream-glm", "dim": 2, "reward_wait": WAIT, **_BUDGET} | terms


# Random ones

_POLICIES: Final[tuple[Mapping[str, Any], ...]] = (
    {"policy": "stream-glm"},
    {"policy": "stream-glm", "factorization": "tree"},
    {"policy": "joint-linucb"},
    {"policy": "stream-glm", "link": "log", "reward_bound": 2.0},
    {"policy": "joint-glm", "horizon": 200},
    {"policy": "shuffle-linucb", "horizon": 200, "batch_size": 16},
)
_HAPPENINGS: Final = (*("crash", "restart", "tend", "look") * 2, *("tick",) * 5, "restore")
_DIM: Final = 3


def random_script(index: int, seed: int = 0) -> Script:
    """Pair number ``index``: everything about the world and the two rows is drawn."""
    rng = np.random.default_rng([seed, index])
    users = int(rng.integers(40, 80))
    body = {**_POLICIES[index % len(_POLICIES)], "dim": _DIM, "epsilon": 4.0, "delta": 1e-5, "reward_wait": WAIT}
    body |= {"hold": bool(rng.random() < 0.5), "default_reward": (None, 0.0, 0.5)[int(rng.integers(3))]}
    body |= {"event_memory": (None, 1.5 * WAIT)[int(rng.integers(2))]}
    if rng.random() < 0.25 and body["policy"] != "shuffle-linucb":
        body["reward_window"] = int(rng.integers(6, 20))
    visitors = int(rng.integers(users // 2, users)) if rng.random() < 0.25 else None
    if visitors is not None:
        rounds = 1 if body["policy"] == "shuffle-linucb" else int(rng.integers(1, 3))
        body |= {"user_level": True, "rounds_per_user": rounds}
    rows = {user: _random_row(rng) for user in range(users)}
    replaced = int(rng.integers(users // 3))
    neighbours = rows[replaced], _random_row(rng)
    if rng.random() < 0.3:  # the delay alone
        neighbours = neighbours[0], Visitor(neighbours[0].arms, neighbours[0].reward, neighbours[1].delay)
    steps = _random_steps(rng, users, replaced)
    return Script(body, rows, steps, replaced, neighbours, int(rng.integers(1, 9)), visitors)


def _random_row(rng: np.random.Generator) -> Visitor:
    arms = rng.standard_normal((4, _DIM))
    arms *= (0.999 / np.linalg.norm(arms, axis=1))[:, np.newaxis]
    reward = None if rng.random() < 0.1 else float(rng.random() < 0.5)
    delay = rng.choice([0.0, 0.5, 3.0, WAIT - 1e-3, WAIT, WAIT + 1e-3, 1.7 * WAIT, np.inf]) + 0.01 * rng.random()
    return Visitor(arms, reward, None if np.isinf(delay) else float(delay))


def _random_steps(rng: np.random.Generator, users: int, replaced: int) -> list[Step]:
    """Users ask alone or in batches, a few of them twice, with random events of the service in between."""
    steps, now, user = list[Step](), 1.0, 0
    while user < users:
        now += float(rng.choice([0.0, 0.01, 0.5, 2.0, WAIT], p=[0.2, 0.2, 0.3, 0.25, 0.05]))
        if rng.random() < 0.25:
            steps.append(Step(now, str(rng.choice(_HAPPENINGS))))
        size = int(rng.integers(2, 9)) if rng.random() < 0.15 else 1
        size = 1 if user <= replaced < user + size else min(size, users - user)  # the replaced user asks alone
        steps.append(Step(now, "ask", tuple(range(user, user + size))))
        if user > 3 and user - 3 != replaced and rng.random() < 0.1:
            steps.append(Step(now, "ask", (user - 3,)))
        user += size
    end = now + 2.0 * WAIT
    again = [user for user in (0, 1) if user != replaced]
    return [*steps, Step(end, "tick"), *(Step(end, "ask", (user,)) for user in again)]
