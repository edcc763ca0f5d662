"""An environment: a kind in a setting.  It checks what the kind yields, draws rewards, and computes regrets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.environments.registry import EnvironmentKind, environment_kind
from tacit.environments.setting import Block, EnvironmentSetting
from tacit.errors import InvalidInput
from tacit.features import Schema
from tacit.glm.links import get_link
from tacit.glm.shifted import with_base_rate
from tacit.typing import FloatArray

_ROUNDING = 1e-9
"""By how much a mean may leave [0, R], as a share of R: sums of products are rounded."""


@dataclass(frozen=True)
class Environment:
    """A distribution over instances; ``blocks`` draws one and plays it round by round.

    Rewards are drawn with one uniform number for each round, shared by all arms, so that two policies that
    choose the same arm in the same round of the same run see the same reward.
    """

    setting: EnvironmentSetting
    kind: EnvironmentKind

    def __post_init__(self) -> None:
        if self.kind.check is not None:
            self.kind.check(self.setting)

    def blocks(self, rng: np.random.Generator) -> Iterator[Block]:
        """Draw an instance and yield its rounds, ``horizon`` in all, in blocks."""
        played, horizon = 0, self.setting.horizon
        for parts in self.kind.generate(rng, self.setting):
            block = self._block(rng, parts, horizon - played)
            played += block.rewards.shape[0]
            yield block
            if played == horizon:
                return
        raise self._error(f"ended after {played} of {horizon} rounds")

    def _block(self, rng: np.random.Generator, parts: Any, left: int) -> Block:
        """What was yielded, cut to the rounds that are left, with rewards and regrets."""
        if not isinstance(parts, tuple) or len(parts) not in (2, 3):
            raise self._error("must yield (contexts, means) or Block(contexts, rewards, regrets)")
        contexts, *tables = (np.ascontiguousarray(part, dtype=np.float64)[:left] for part in parts)
        if contexts.ndim != 3 or contexts.shape[2] != self.setting.dim or 0 in contexts.shape:
            wanted = f"(rounds, arms, {self.setting.dim})"
            raise self._error(f"must yield contexts of shape {wanted}, got {contexts.shape}")
        for table in tables:
            if table.shape != contexts.shape[:2]:
                wanted = f"one number for each arm, shape {contexts.shape[:2]}"
                raise self._error(f"must yield {wanted}, got shape {table.shape}")
        return Block(contexts, *tables) if len(tables) == 2 else self._outcomes(rng, contexts, *tables)

    def _outcomes(self, rng: np.random.Generator, contexts: FloatArray, means: FloatArray) -> Block:
        bound, uniforms = self.setting.largest_reward, rng.random((means.shape[0], 1))
        slack = _ROUNDING * bound
        if not ((means >= -slack) & (means <= bound + slack)).all():
            raise self._error(f"must yield mean rewards in [0, {bound:g}]")
        rewards = self.setting.link.draw_rewards(means, bound, uniforms)
        return Block(contexts, rewards, means.max(axis=1, keepdims=True) - means)

    def _error(self, fault: str) -> InvalidInput:
        return InvalidInput(f"the environment {self.kind.name!r} {fault}")


def make_environment(
    *,
    link: str,
    dim: int,
    arms: int,
    horizon: int,
    theta_norm: float,
    contexts: str = "ball",
    base_rate: float | None = None,
    schema: Schema | None = None,
) -> Environment:
    """An environment by the names that the command line uses; ``base_rate`` is the mean of arms whose score is 0.

    ``schema`` is that of the users whom ``contexts="schema"`` simulates.
    """
    shifted = with_base_rate(get_link(link), base_rate)
    setting = EnvironmentSetting(shifted, dim, arms, horizon, theta_norm, schema=schema)
    return Environment(setting, environment_kind(contexts))
