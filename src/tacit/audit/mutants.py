"""Sabotage: faults that such software is known for, put in from outside, each to be caught by a named check.

A mutant replaces attributes while it is applied and leaves no trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tacit.audit.checks import CHECKS
from tacit.policies import base, persistence
from tacit.policies.baselines.joint_linucb import JointLinUcb
from tacit.policies.baselines.shuffle_linucb import RELEASE, ShuffleLinUcb
from tacit.policies.decision import Pending
from tacit.policies.joint import JointGLM
from tacit.policies.joint import policy as joint_policy
from tacit.policies.stream import StreamGLM
from tacit.privacy import continual, noise
from tacit.shuffle import randomizer
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray

_MISSING: Final = object()
Change = tuple[Any, str, Any]
"""Object, attribute, and what to put there."""


@contextmanager
def changed(*changes: Change) -> Iterator[None]:
    """Put other attributes in place, and the old ones back."""
    before = [(owner, name, vars(owner).get(name, _MISSING)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(before):
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


@dataclass(frozen=True)
class Mutant:
    """A fault, and the check that must find it."""

    name: str
    fault: str
    check: str
    changes: Callable[[], tuple[Change, ...]]

    def caught(self) -> list[str]:
        """What the check finds while the fault is in place; nothing: the mutant survives."""
        with changed(*self.changes()):
            return CHECKS[self.check]()


def _noise_halved() -> tuple[Change, ...]:
    original = noise.FastNoise.gaussian
    return ((noise.FastNoise, "gaussian", lambda self, scale, shape: 0.5 * original(self, scale, shape)),)


def _row_bound(policy: type, bound: Callable[[Any], float]) -> tuple[Change, ...]:
    """The same stream, charged and noised for another row bound."""
    original: Callable[[Any, int], continual.ContinualRelease] = vars(policy)["_plan"]

    def plan(self: Any, horizon: int) -> continual.ContinualRelease:
        whole = original(self, horizon)
        return replace(whole, row_bound=bound(self), row_norm=min(whole.row_norm, bound(self)))

    return ((policy, "_plan", plan),)


def _clip_removed() -> tuple[Change, ...]:
    return ((base.Policy, "_checked_reward", lambda self, reward: float(reward)),)


def _waits_for_rewards() -> tuple[Change, ...]:
    original = ShuffleLinUcb._on_event

    def on_event(self: Any, flag: int) -> None:
        if flag & RELEASE and self.state.rows.count[0] < self.state.counts[1]:
            self.state.rows.count[0] = 0
            flag &= ~RELEASE
        original(self, flag)

    return ((ShuffleLinUcb, "_on_event", on_event),)


def _noise_reused() -> tuple[Change, ...]:
    def restarted(state: Any) -> noise.NoiseSource:
        seeds = np.random.SeedSequence(5).spawn(3)  # the seed of the check's policy
        return noise.FastNoise(np.random.default_rng(seeds[0]))

    return ((base, "noise_from_state", restarted),)


def _noise_redrawn() -> tuple[Change, ...]:
    original, rng = continual.close_leaf, np.random.default_rng(0)

    def close_leaf(stream: continual.Stream, draws: FloatArray) -> bool:
        if stream.clock[0] > 0 and stream.noisy.size:
            stream.noisy[:] += np.where(stream.noisy != 0.0, 1e-3 * rng.standard_normal(stream.noisy.shape), 0.0)
        return original(stream, draws)

    return ((continual, "close_leaf", close_leaf),)


def _private_refresh() -> tuple[Change, ...]:
    original = vars(joint_policy)["constants_for"]

    def literal(profile: str, *arguments: Any, **names: Any) -> Any:
        return original("paper" if profile == "theory" else profile, *arguments, **names)

    return ((joint_policy, "constants_for", literal),)


def _fewer_rounds() -> tuple[Change, ...]:
    original = JointLinUcb._plan

    @dataclass(frozen=True)
    class Longer(continual.ContinualRelease):
        """Planned and charged for a quarter of the leaves that it serves."""

        def open(self) -> continual.Stream:
            stream = super().open()
            stream.clock[1] *= 4
            return stream

    def plan(self: Any, horizon: int) -> Any:
        return Longer(**vars(original(self, max(1, horizon // 4))))

    return ((JointLinUcb, "_plan", plan),)


def _message_short() -> tuple[Change, ...]:
    return ((SumProtocol, "widths", property(lambda self: self.levels + self.noise_bits - 1)),)


def _noise_bit_short() -> tuple[Change, ...]:
    original = randomizer.noise_share

    def share(protocol: SumProtocol, users: int, rng: np.random.Generator) -> Any:
        return original(replace(protocol, noise_bits=max(1, protocol.noise_bits - 1)), users, rng)

    return ((randomizer, "noise_share", share),)


def _smallest_batch_ignored() -> tuple[Change, ...]:
    keep = property(lambda self: 1, lambda self, value: vars(self).__setitem__("min_users", value))
    return ((SumProtocol, "min_users", keep),)


def _without_score(policy: Any) -> float:
    return math.sqrt(2.0) * float(policy.setting.max_derivative)


MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant("noise-halved", "noise halved", "noise scale", _noise_halved),
    Mutant("sqrt2-missing", "sqrt(2) missing", "replay of joint-glm", lambda: _row_bound(JointGLM, lambda _: 1.0)),
    Mutant("clip-removed", "one clip removed", "replay of joint-linucb, counts", _clip_removed),
    Mutant("noise-reused", "noise of a node reused after restore", "fresh noise", _noise_reused),
    Mutant("noise-redrawn", "noise redrawn for a node", "stream reference", _noise_redrawn),
    Mutant(
        "resumed-twice",
        "a copied state goes on twice",
        "resumed once",
        lambda: ((persistence.Claim, "take", lambda self: None), (persistence, "_RESUMED", "never")),
    ),
    Mutant(
        "reward-twice",
        "a reward counted twice",
        "replay of stream-glm",
        lambda: ((Pending, "discard", lambda self, identity: None),),
    ),
    Mutant("private-refresh", "refresh triggered by private data", "replay of joint-glm, theory", _private_refresh),
    Mutant(
        "score-forgotten",
        "sensitivity of the score forgotten",
        "replay of stream-glm",
        lambda: _row_bound(StreamGLM, _without_score),
    ),
    Mutant("fewer-rounds", "ledger charged for fewer rounds", "replay of joint-linucb", _fewer_rounds),
    Mutant("message-short", "message one bit short", "message width", _message_short),
    Mutant("noise-bit-short", "one bit of noise short", "shuffled noise", _noise_bit_short),
    Mutant("n-min-ignored", "n_min ignored", "smallest batch", _smallest_batch_ignored),
    Mutant("waits-for-rewards", "a batch waits for rewards", "replay of shuffle-linucb", _waits_for_rewards),
)
