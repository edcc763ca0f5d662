"""Six sites to hold a plan against: users, arms and rewards by rules of their own, nothing of which the plan knows.

Users are drawn from uneven and dependent distributions, and rewards follow from rules with thresholds, which no schema
here can say exactly.  Only the level and the strength of the rules are set, so that random arms and the best ones earn
the rates that a site states.  No code is shared with what `tacit plan` plays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tacit
from tacit.features import Category, Flag, Number, Schema

Columns = dict[str, npt.NDArray[Any]]
Draw = Callable[[np.random.Generator, int], tuple[Columns, Columns, npt.NDArray[np.float64]]]
"""Draws users, their arms, of shape (users, K), and how much better or worse each arm is than usual, in log-odds."""


@dataclass(frozen=True)
class Site:
    """A schema, how users come and react, and what random arms and the best one for each user earn."""

    name: str
    schema: Schema
    draw: Draw
    random_rate: float
    best_rate: float
    decisions: int
    arms: int
    hides: bool = False
    """Whether rewards follow what the schema does not say; the best choice by it then earns less."""


@dataclass(frozen=True)
class Calibrated:
    """A site with the level and the strength of rewards that its rates ask for."""

    site: Site
    level: float
    strength: float
    one_arm_rate: float
    """What the best choice earns that does not look at users."""
    best_rate: float
    """What the best choice earns that knows of users what the schema says."""

    def gain(self, epsilon: float, theta_bound: float, seed: int, delta: float = 1e-6) -> float:
        """Play one life and return its gain as a share of that of the best choice by the schema."""
        site, rng = self.site, np.random.default_rng([77, seed])
        policy = tacit.make_policy(
            "stream-glm",
            features=site.schema,
            epsilon=epsilon,
            delta=delta,
            base_rate=site.random_rate,
            theta_bound=theta_bound,
            seed=seed,
        )
        mine = random = best = 0.0
        for start in range(0, site.decisions, 1_000):
            users, arms, better = site.draw(rng, min(1_000, site.decisions - start))
            chances = 1.0 / (1.0 + np.exp(-self.level - self.strength * better))
            clicks = rng.random(chances.shape) < chances
            chosen = policy.play(_encoded(site.schema, users, arms), clicks.astype(np.float64))
            mine += float(np.take_along_axis(chances, chosen[:, np.newaxis], 1).sum())
            random, best = random + float(chances.mean(1).sum()), best + float(chances.max(1).sum())
        whole = site.best_rate - site.random_rate
        return (mine - random) / (best - random) * whole / (self.best_rate - site.random_rate)


def _encoded(schema: Schema, users: Columns, arms: Columns) -> npt.NDArray[np.float64]:
    """Encode users with their arms."""
    count, offered = next(iter(arms.values())).shape
    flat = {field.name: np.repeat(users[field.name], offered) for field in schema.user}
    return schema.encode(flat | {name: column.ravel() for name, column in arms.items()}).reshape(count, offered, -1)


def calibrated(site: Site, users: int = 40_000) -> Calibrated:
    """Find level and strength by bisection, on users of its own."""
    people, arms, better = site.draw(np.random.default_rng(555), users)

    def level_at(strength: float) -> float:
        low, high = -20.0, 20.0
        for _ in range(50):
            middle = 0.5 * (low + high)
            below = np.mean(1.0 / (1.0 + np.exp(-middle - strength * better))) < site.random_rate
            low, high = (middle, high) if below else (low, middle)
        return low

    weak, strong = 0.0, 8.0
    for _ in range(40):
        strength = 0.5 * (weak + strong)
        chances = 1.0 / (1.0 + np.exp(-level_at(strength) - strength * better))
        weak, strong = (strength, strong) if np.mean(chances.max(axis=1)) < site.best_rate else (weak, strength)
    told = {field.name: people[field.name] for field in site.schema.user}
    best = _rate_by(told | arms, chances) if site.hides else site.best_rate
    return Calibrated(site, level_at(strength), strength, _rate_by(arms, chances), best)


def _rate_by(told: Columns, chances: npt.NDArray[np.float64]) -> float:
    """What the arm earns that is best on average by what is told, numbers to a tenth of their range."""
    cells = np.zeros(chances.shape, dtype=np.int64)
    for column in told.values():
        if column.dtype == np.float64:
            low, high = column.min(), column.max()
            column = np.minimum(np.floor(10.0 * (column - low) / (high - low)), 9.0)
        values, codes = np.unique(column, return_inverse=True)
        cells = cells * values.size + codes.reshape(column.shape + (1,) * (2 - column.ndim))
    counts = np.maximum(np.bincount(cells.ravel()), 1)
    worth = np.bincount(cells.ravel(), weights=chances.ravel()) / counts
    return float(np.take_along_axis(chances, worth[cells].argmax(axis=1)[:, np.newaxis], 1).mean())


def _every(values: list[str], count: int) -> npt.NDArray[Any]:
    """All values for each user, in one order."""
    return np.tile(np.array(values, dtype=object), (count, 1))


# A chain of clinics, which reminds people of their appointments

REMINDERS = ["text", "call", "letter", "mail", "app"]


def _patients(rng: np.random.Generator, count: int) -> tuple[Columns, Columns, npt.NDArray[np.float64]]:
    age = np.clip(rng.normal(57.0, 17.0, count), 18.0, 95.0)
    working = (age < 66) & (rng.random(count) < 0.7)
    missed = np.minimum(rng.poisson(0.6 + 0.8 * (age < 35)), 10)
    users: Columns = {
        "age": age,
        "missed": missed.astype(float),
        "distance": np.minimum(rng.lognormal(1.6, 0.8, count), 50.0),
        "language": rng.choice(np.array(["first", "second", "other"], dtype=object), count, p=[0.72, 0.19, 0.09]),
        "working": working,
        "children": (age < 55) & (rng.random(count) < 0.4),
        "chronic": rng.random(count) < 0.15 + 0.005 * (age - 18),
        "smartphone": rng.random(count) < np.where(age < 60, 0.92, 0.55),
    }
    foreign = users["language"] != "first"
    better = np.stack(
        [
            0.35 + 0.25 * working - 0.3 * (age > 75),
            0.15 + 0.9 * (missed >= 2) - 0.5 * working + 0.3 * users["chronic"],
            -0.4 + 1.1 * (age > 68) - 0.3 * foreign,
            -0.1 + 0.5 * working - 0.5 * (age > 68) - 0.2 * users["children"],
            -0.3 + 0.9 * (users["smartphone"] & (age < 45)) + 0.3 * (users["distance"] > 10.0),
        ],
        axis=1,
    )
    return users, {"reminder": _every(REMINDERS, count)}, better


_CLINIC_WIDE = Schema(
    user=[
        Number("age", 18, 95),
        Number("missed", 0, 10),
        Number("distance", 0, 50),
        Category("language", ["first", "second", "other"]),
        *(Flag(name) for name in ("working", "children", "chronic", "smartphone")),
    ],
    arm=[Category("reminder", REMINDERS)],
    per_arm="reminder",
)
_CLINIC_NARROW = Schema(
    user=[Number("age", 18, 95)], arm=[Category("reminder", REMINDERS)], crosses=[("age", "reminder")]
)


# A magazine, whose readers are offered eight articles out of many

TOPICS = ["politics", "sport", "culture", "science", "travel", "money"]
_SHARES = [0.3, 0.25, 0.15, 0.1, 0.1, 0.1]


def _readers(rng: np.random.Generator, count: int) -> tuple[Columns, Columns, npt.NDArray[np.float64]]:
    kind = rng.choice(3, count, p=[0.5, 0.3, 0.2])
    age = np.clip(rng.normal(np.array([35.0, 50.0, 68.0])[kind], 9.0), 14, 99)
    phone = rng.random(count) < np.array([0.85, 0.5, 0.25])[kind]
    topic, minutes = rng.choice(6, (count, 8), p=_SHARES), np.minimum(rng.gamma(2.0, 3.0, (count, 8)), 25.0)
    liking = np.array(
        [[-0.2, 0.5, 0.1, 0.0, -0.1, -0.3], [0.3, 0.3, -0.2, -0.1, -0.2, 0.4], [0.5, -0.4, 0.4, -0.1, 0.1, 0.0]]
    )
    better = np.take_along_axis(liking[kind], topic, 1) - 0.35 * phone[:, np.newaxis] * (minutes > 7.0)
    names = np.array(TOPICS, dtype=object)
    users: Columns = {"age": age, "phone": phone, "weekend": rng.random(count) < 0.28}
    return users, {"topic": names[topic], "minutes": minutes}, better


_MAGAZINE = Schema(
    user=[Number("age", 14, 99), Flag("phone"), Flag("weekend")],
    arm=[Category("topic", TOPICS), Number("minutes", 0, 25)],
    crosses=[("age", "topic"), ("phone", "topic"), ("phone", "minutes")],
)


# A trial of three exercises against back pain

EXERCISES = ["stretching", "strength", "walking"]


def _sore(rng: np.random.Generator, count: int) -> tuple[Columns, Columns, npt.NDArray[np.float64]]:
    age, pain = np.clip(rng.normal(46.0, 13.0, count), 18, 85), np.clip(rng.beta(2.0, 3.0, count) * 10.0, 0, 10)
    sits = rng.random(count) < 0.6
    users: Columns = {"age": age, "pain": pain, "sits": sits, "injured": rng.random(count) < 0.12}
    strength = 0.6 * (pain < 4.0) - 1.2 * users["injured"] - 0.02 * (age - 46.0)
    better = np.stack([0.1 + 0.4 * sits, strength, 0.2 * ~sits + 0.015 * (age - 46.0)], axis=1)
    return users, {"exercise": _every(EXERCISES, count)}, better


_TRIAL = Schema(
    user=[Number("age", 18, 85), Number("pain", 0, 10), Flag("sits"), Flag("injured")],
    arm=[Category("exercise", EXERCISES)],
    per_arm="exercise",
)


# A shop by mail, with six offers: three discounts with and without free delivery

DISCOUNTS = ["none", "tenth", "fifth"]


def _buyers(rng: np.random.Generator, count: int) -> tuple[Columns, Columns, npt.NDArray[np.float64]]:
    spent, new = np.minimum(rng.lognormal(3.2, 1.0, count), 300.0), rng.random(count) < 0.35
    region = rng.choice(np.array(["city", "town", "land"], dtype=object), count, p=[0.5, 0.35, 0.15])
    users: Columns = {"spent": spent, "new": new, "region": region}
    discount, free = np.repeat(np.arange(3), 2), np.tile([False, True], 3)
    keen = np.where(new, 0.45, 0.15)[:, np.newaxis]
    better = keen * discount + (0.2 + 0.5 * (region == "land")[:, np.newaxis]) * free
    better -= 0.35 * (spent > 60.0)[:, np.newaxis] * discount
    names = np.array(DISCOUNTS, dtype=object)
    return users, {"discount": np.tile(names[discount], (count, 1)), "free": np.tile(free, (count, 1))}, better


_OFFERS = Schema(
    user=[Number("spent", 0, 300), Flag("new"), Category("region", ["city", "town", "land"])],
    arm=[Category("discount", DISCOUNTS), Flag("free")],
    crosses=[("spent", "discount"), ("new", "discount"), ("region", "free")],
)


# A course of languages, where one of four lessons is better for nearly everybody

LESSONS = ["drill", "story", "video", "talk"]


def _learners(rng: np.random.Generator, count: int) -> tuple[Columns, Columns, npt.NDArray[np.float64]]:
    level = np.clip(rng.exponential(2.0, count), 0, 10)
    users: Columns = {
        "level": level,
        "daily": rng.random(count) < 0.22,
        "goal": rng.choice(np.array(["travel", "work", "school"], dtype=object), count, p=[0.45, 0.2, 0.35]),
    }
    better = np.tile([0.0, 0.7, 0.25, 0.1], (count, 1))
    better[:, 3] += 0.9 * (level > 5.0)
    better[:, 0] += 0.5 * (users["goal"] == "school") * users["daily"]
    return users, {"lesson": _every(LESSONS, count)}, better


_COURSE = Schema(
    user=[Number("level", 0, 10), Flag("daily"), Category("goal", ["travel", "work", "school"])],
    arm=[Category("lesson", LESSONS)],
    per_arm="lesson",
)

SITES = (
    Site("clinic, 55 features", _CLINIC_WIDE, _patients, 0.087, 0.131, 20_000, 5),
    Site("clinic, 12 features", _CLINIC_NARROW, _patients, 0.087, 0.131, 20_000, 5, hides=True),
    Site("magazine", _MAGAZINE, _readers, 0.06, 0.10, 30_000, 8, hides=True),
    Site("trial", _TRIAL, _sore, 0.40, 0.50, 5_000, 3),
    Site("offers", _OFFERS, _buyers, 0.02, 0.032, 60_000, 6),
    Site("course", _COURSE, _learners, 0.15, 0.21, 15_000, 4),
)
