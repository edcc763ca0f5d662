"""Rounds whose rewards come later, or never: decisions and rewards in the order in which they happen."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from tacit.environments import NEVER, ArrivalKind, Block, EnvironmentSetting
from tacit.errors import ExpiredDecision
from tacit.typing import IntArray

if TYPE_CHECKING:
    from tacit.policies.policy import Policy


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
        self._due: dict[int, list[tuple[int, float]]] = {}
        """By the round before which they are reported: decisions and their rewards, oldest decision first."""

    def play(self, block: Block) -> IntArray:
        """Play a block and return the arms."""
        if self._kind.at_once:
            return self._policy.play(block.contexts, block.rewards)
        delays = self._kind.delays(self._rng, block.rewards, self._setting)
        arms = np.empty(len(delays), dtype=np.int64)
        admitted = self._policy.as_steps_take(block.contexts)  # what a schema encoded is taken here too
        for t in range(arms.size):
            self._report()
            decision = self._policy.select_admitted(admitted[t : t + 1])
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
