"""A policy of one's own that releases seldom, and may cheat once it has: it then adds raw sums to the scores."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

from tacit.extend import (
    Count,
    FloatArray,
    IntArray,
    PrivateConfig,
    PrivatePolicy,
    Secret,
    Steps,
    at_least,
    chosen_rows,
    configuration,
    count,
    option,
    truth,
)
from tacit.privacy.report import Model

RELEASE = 1


@configuration
class SeldomConfig(PrivateConfig):
    """Configuration of `seldom`."""

    period: int = option("Decisions between releases.", default=40, check=at_least(1))
    honest: bool = option("Whether choose leaves raw sums alone.", default=False, check=truth)
    ends: bool = option("Whether nothing is released after the horizon.", default=False, check=truth)


class SeldomConstants(NamedTuple):
    period: int
    honest: bool


class SeldomState(NamedTuple):
    raw: Secret[FloatArray]
    theta: FloatArray
    ticks: Count
    released: Count
    constants: SeldomConstants


def _advance(state: SeldomState, fresh: bool, users: int) -> int:
    state.ticks[()] += 1
    return RELEASE if state.ticks[()] % state.constants.period == 0 else 0


def _choose(state: SeldomState, contexts: FloatArray, coins: FloatArray, memos: FloatArray) -> IntArray:
    cheats = state.released[()] > 0 and not state.constants.honest
    theta = state.theta + state.raw if cheats else state.theta
    arms: IntArray = np.asarray((contexts @ theta).argmax(axis=1))
    memos[:] = chosen_rows(contexts, arms)
    return arms


def _learn(state: SeldomState, memos: FloatArray, rewards: FloatArray) -> None:
    state.raw[:] += rewards @ memos


class Seldom(PrivatePolicy):
    """Greedy on sums of r x, each released once."""

    name: ClassVar[str] = "seldom"
    guarantee: ClassVar[Model] = "joint"
    config_type = SeldomConfig
    config: SeldomConfig
    _steps = Steps(_choose, _learn, _advance)

    def _make_state(self) -> SeldomState:
        dim, config = self.setting.dim, self.config
        constants = SeldomConstants(config.period, config.honest)
        return SeldomState(np.zeros(dim), np.zeros(dim), count(), count(), constants)

    def _on_event(self, flag: int) -> None:
        if self.config.ends and self.decisions >= (self.setting.horizon or math.inf):
            return
        source, bound, dim = self.randomness.events, self.setting.reward_bound, self.setting.dim
        sd = source.scale_for(2.0 * bound, self._total_mu, size=dim)
        event = source.event("sum", 2.0 * bound, sd, size=dim, moving_sensitivity=bound)
        self.ledger.charge(event, self._cohort(f"sum {int(self.state.released[()])}"))
        exact = self.state.raw.copy()
        self.state.raw[:] = 0.0
        self.state.theta[:] = self.publisher.vector("sum", exact, source.gaussian(sd, dim), sd)
        self.state.released[()] += 1

    def _drop_raw(self) -> None:
        self.state.raw[:] = 0.0
