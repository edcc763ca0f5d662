"""Faults that such software is known for, each as attributes to be put in place of the real ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.errors import CannotMark
from tacit.estimation import plan, sensitivity
from tacit.estimation.optimizers import NoisyNewton
from tacit.policies import admission, clock, continual_policy, one_life, persistence, policy
from tacit.policies.baselines.joint_linucb import JointLinUcb
from tacit.policies.batch_policy import BatchPolicy
from tacit.policies.batches import CLOSE, OPEN
from tacit.policies.continual_policy import ContinualPolicy
from tacit.policies.joint import JointGLM
from tacit.policies.joint import policy as joint_policy
from tacit.policies.log import Publisher
from tacit.policies.private_policy import PrivatePolicy
from tacit.privacy import continual, noise
from tacit.privacy.discrete_gaussian import discrete_gaussian
from tacit.privacy.geometric import GeometricLeaves, leaf_weight, noise_steps
from tacit.privacy.ledger import Ledger
from tacit.privacy.randomness import Randomness
from tacit.privacy.tree import TreeNodes
from tacit.shuffle import calibration, randomizer
from tacit.shuffle.guarantee import Dominance
from tacit.shuffle.parameters import SumProtocol
from tacit.typing import FloatArray, IntArray
from tests.mutants import faulty_steps

Change = tuple[Any, Any, Any]
"""Object and attribute, or dictionary and key, and what to put there."""


def noise_halved() -> tuple[Change, ...]:
    original = noise.FastNoise.gaussian
    return ((noise.FastNoise, "gaussian", lambda self, scale, shape: 0.5 * original(self, scale, shape)),)


def row_bound(kind: type, bound: Callable[[Any], float]) -> tuple[Change, ...]:
    """A stream that is charged and noised for another row bound."""
    original: Callable[[Any, int], continual.ContinualRelease] = vars(kind)["_plan"]

    def plan(self: Any, horizon: int) -> continual.ContinualRelease:
        whole = original(self, horizon)
        return replace(whole, row_bound=bound(self), row_norm=min(whole.row_norm, bound(self)))

    return ((kind, "_plan", plan),)


def clip_removed() -> tuple[Change, ...]:
    return ((policy, "admit_reward", lambda reward, setting: float(reward)),)


def _clip_removed_where(concerned: Callable[[Any, int], bool]) -> tuple[Change, ...]:
    """No clip for the rewards of those policies and decisions."""
    original, admit, unclipped = policy.Policy.update, admission.admit_reward, list[bool]()

    def update(self: Any, decision: Any, reward: float) -> None:
        unclipped.append(concerned(self, int(getattr(decision, "id", decision))))
        try:
            original(self, decision, reward)
        finally:
            unclipped.pop()

    def admitted(reward: float, setting: Any) -> float:
        return float(reward) if unclipped and unclipped[-1] else admit(reward, setting)

    return (policy.Policy, "update", update), (policy, "admit_reward", admitted)


def late_clip_removed() -> tuple[Change, ...]:
    """Rewards that come after a further decision are not clipped."""
    return _clip_removed_where(lambda chosen, identity: identity < chosen._pending._next_id - 1)


def kept_clip_removed() -> tuple[Change, ...]:
    """Rewards that are kept until their decision is old enough are not clipped."""
    return _clip_removed_where(lambda chosen, identity: chosen._pending.age > 0)


def exact_noise_memoised() -> tuple[Change, ...]:
    """The exact sampler has one answer for the same parameter and number of samples."""
    known = dict[tuple[int, int], IntArray]()

    def sample(parameter: int, samples: int) -> IntArray:
        if (parameter, samples) not in known:
            known[parameter, samples] = discrete_gaussian(parameter, samples)
        return known[parameter, samples].copy()

    return ((noise, "discrete_gaussian", sample),)


def raw_sums_read() -> tuple[Change, ...]:
    """`joint-linucb` adds the raw sum of r x to the estimate that it chooses by."""
    return (other_steps(JointLinUcb, choose=faulty_steps.chosen_by_raw_sums),)


def waits_for_rewards() -> tuple[Change, ...]:
    original = BatchPolicy._on_event

    def on_event(self: Any, flag: int) -> None:
        if flag == CLOSE and self.state.rows.held[()] < self.batch_users:
            flag = OPEN
        original(self, flag)

    return ((BatchPolicy, "_on_event", on_event),)


def noise_reused() -> tuple[Change, ...]:
    def restarted(state: Any) -> Randomness:
        return Randomness.make(5, None, private=True)  # the seed of the check's policy

    return ((Randomness, "from_json", restarted),)


def noise_redrawn() -> tuple[Change, ...]:
    original, rng = Publisher.leaf, np.random.default_rng(0)

    def leaf(self: Publisher, stream: continual.Stream, draws: FloatArray, users: int) -> bool:
        if stream.closed[()] > 0 and isinstance(stream.mechanism, TreeNodes):
            nodes = stream.mechanism.noisy
            nodes[:] += np.where(nodes != 0.0, 1e-3 * rng.standard_normal(nodes.shape), 0.0)
        return original(self, stream, draws, users)

    return ((Publisher, "leaf", leaf),)


def weight_of_the_next_leaf() -> tuple[Change, ...]:
    original = Publisher.leaf

    def leaf(self: Publisher, stream: continual.Stream, draws: FloatArray, users: int) -> bool:
        leaves = stream.mechanism
        if isinstance(leaves, GeometricLeaves) and continual.leaf_is_due(stream):
            following = leaf_weight(leaves.boundary_after, leaves.constants.head_start)
            stream.leaf[:] *= following / leaves.open_weight
        return original(self, stream, draws, users)

    return ((Publisher, "leaf", leaf),)


def last_leafs_noise() -> tuple[Change, ...]:
    """Drawn for the leaf before, which has less of it."""

    def scale(stream: continual.Stream) -> float:
        leaves = stream.mechanism
        assert isinstance(leaves, GeometricLeaves)
        weight = leaves.open_weight
        return noise_steps(float(stream.noise_sd[()]), leaves.constants.grid, max(1, weight - 1), max(2, weight))

    return ((continual_policy, "leaf_noise_scale", scale),)


def played_noise_short() -> tuple[Change, ...]:
    """Ticks of ``play`` have half of their noise: what the audit sees of ``select`` is not what simulations do."""
    play, release, playing = policy.Policy.play, clock.release, list[bool]()

    def played(self: Any, contexts: Any, rewards: Any) -> Any:
        playing.append(True)
        try:
            return play(self, contexts, rewards)
        finally:
            playing.pop()

    def released(self: Any, draws: FloatArray, users: int, counted: int) -> None:
        release(self, np.rint(0.5 * draws) if playing else draws, users, counted)

    return (policy.Policy, "play", played), (clock, "release", released)


def opposite_noise() -> tuple[Change, ...]:
    original = noise.FastNoise.gaussian

    def gaussian(self: noise.FastNoise, scale: float, shape: Any) -> FloatArray:
        drawn = original(self, scale, shape)
        if drawn.ndim > 0 and drawn.shape[-1] > 4:
            drawn[..., -2:] = -drawn[..., :2]
        return drawn

    return ((noise.FastNoise, "gaussian", gaussian),)


def other_steps(kind: Any, **steps: Callable[..., Any]) -> Change:
    """A policy with some of its steps replaced."""
    return (kind, "_steps", kind._steps._replace(**steps))


def call_noise_halved() -> tuple[Change, ...]:
    original = NoisyNewton.release

    def release(self: NoisyNewton, source: Any, name: str = "optimizer") -> Any:
        planned = original(self, source, name)
        return replace(planned, noise_sd=0.5 * planned.noise_sd)

    return ((NoisyNewton, "release", release),)


def used_noise_short() -> tuple[Change, ...]:
    """The optimizers add two thirds of the noise that was drawn for them."""
    original = JointGLM._refresh

    def refresh(self: Any, *sides: Any) -> None:
        whole = self.randomness
        source = whole.events

        class Short:
            """Hands out less than it draws."""

            def gaussian(self, scale: float, shape: Any) -> FloatArray:
                return np.asarray(source.gaussian(scale, shape) * (2.0 / 3.0))

            def __getattr__(self, name: str) -> Any:
                return getattr(source, name)

        self.randomness = replace(whole, events=Short())
        try:
            original(self, *sides)
        finally:
            self.randomness = whole

    return ((JointGLM, "_refresh", refresh),)


def group_noise_short() -> tuple[Change, ...]:
    """Ticks of several users have two thirds of their noise."""
    original = ContinualPolicy._close

    def close(self: Any, draws: FloatArray, users: int) -> bool:
        return original(self, draws * (2.0 / 3.0) if users > 1 else draws, users)

    return ((ContinualPolicy, "_close", close),)


def calls_uncharged() -> tuple[Change, ...]:
    original = Ledger.charge

    def charge(self: Ledger, event: Any, cohort: str | None = None) -> Any:
        return None if event.name.startswith("optimizer call") else original(self, event, cohort)

    return ((Ledger, "charge", charge),)


def diameter_short() -> tuple[Change, ...]:
    original = sensitivity.gradient_diameter
    return ((plan, "gradient_diameter", lambda *terms: 0.7 * original(*terms)),)


def movers_forgotten() -> tuple[Change, ...]:
    return ((JointGLM, "_pair_sensitivity", property(lambda self: self._problem(0.0).sensitivity)),)


def _epoch_starts(change: Callable[[continual.Stream], None]) -> tuple[Change, ...]:
    original = continual.start_epoch

    def start(stream: continual.Stream, planned: continual.ContinualRelease) -> None:
        original(stream, planned)
        change(stream)

    return (continual, "start_epoch", start), (continual_policy, "start_epoch", start)


def waiting_leaf_twice() -> tuple[Change, ...]:
    def double(stream: continual.Stream) -> None:
        stream.leaf[:] *= 2.0

    return _epoch_starts(double)


def carried_twice() -> tuple[Change, ...]:
    def double(stream: continual.Stream) -> None:
        if isinstance(stream.mechanism, TreeNodes):
            stream.mechanism.carried[:] *= 2.0
        stream.released[:] *= 2.0

    return _epoch_starts(double)


def recovers_the_leaf() -> tuple[Change, ...]:
    original = ContinualPolicy._drop_raw

    def drop(self: Any) -> None:
        leaf = self.state.stream.leaf.copy()
        original(self)
        self.state.stream.leaf[:] = leaf

    return ((ContinualPolicy, "_drop_raw", drop),)


def recovers_the_noise() -> tuple[Change, ...]:
    original = PrivatePolicy.recover

    def recover(self: Any) -> str:
        kept = self.randomness
        text = original(self)
        self.randomness = kept
        return text

    return ((PrivatePolicy, "recover", recover),)


class NoLock(AbstractContextManager[None]):
    """A lock that lets all threads in."""

    def __exit__(self, *error: object) -> None:
        """Nothing to release: no thread waits."""

    def locked(self) -> bool:
        return False


def unlocked() -> tuple[Change, ...]:
    return (one_life, "make_lock", NoLock), (one_life, "make_running", NoLock)


def mark_given_up() -> tuple[Change, ...]:
    original = persistence._mark

    def mark(path: Any, token: str) -> None:
        try:
            original(path, token)
        except CannotMark:
            return

    return ((persistence, "_mark", mark),)


def rewards_unclaimed() -> tuple[Change, ...]:
    original = policy.Policy.update

    def update(self: Any, decision: Any, reward: float) -> None:
        claim, self._life.claim = self._life.claim, None
        original(self, decision, reward)
        self._life.claim = claim

    return ((policy.Policy, "update", update),)


def batch_refused() -> tuple[Change, ...]:
    original = admission.admit_users

    def admit(contexts: Any, setting: Any) -> Any:
        block, refused = original(contexts, setting)
        for error in refused.values():
            raise error
        return block, refused

    return ((admission, "admit_users", admit),)


def dominance_short() -> tuple[Change, ...]:
    original = Dominance.mu
    # Calibrations are remembered: those made with the fault must neither be used by others nor others' here.
    uncached = getattr(calibration._calibrated, "__wrapped__", calibration._calibrated)
    return (
        (Dominance, "mu", lambda self, shift, coordinates: 0.5 * original(self, shift, coordinates)),
        (calibration, "_calibrated", uncached),
    )


def private_refresh() -> tuple[Change, ...]:
    original = vars(joint_policy)["joint_profile"]

    def literal(profile: str, *arguments: Any, **names: Any) -> Any:
        return original("paper" if profile == "theory" else profile, *arguments, **names)

    return ((joint_policy, "joint_profile", literal),)


def fewer_rounds() -> tuple[Change, ...]:
    original = JointLinUcb._plan

    @dataclass(frozen=True)
    class Longer(continual.ContinualRelease):
        """Planned and charged for a quarter of the leaves that it serves."""

        def open(self) -> continual.Stream:
            stream = super().open()
            stream.leaves[()] *= 4
            return stream

    def plan(self: Any, horizon: int) -> Any:
        return Longer(**vars(original(self, max(1, horizon // 4))))

    return ((JointLinUcb, "_plan", plan),)


def message_short() -> tuple[Change, ...]:
    return ((SumProtocol, "widths", property(lambda self: self.levels + self.noise_bits - 1)),)


def noise_bit_short() -> tuple[Change, ...]:
    original = randomizer.noise_share

    def share(protocol: SumProtocol, users: int, rng: np.random.Generator) -> Any:
        return original(replace(protocol, noise_bits=max(1, protocol.noise_bits - 1)), users, rng)

    return ((randomizer, "noise_share", share),)


def smallest_batch_ignored() -> tuple[Change, ...]:
    keep = property(lambda self: 1, lambda self, value: vars(self).__setitem__("min_users", value))
    return ((SumProtocol, "min_users", keep),)


def without_score(chosen: Any) -> float:
    return math.sqrt(2.0) * float(chosen.setting.max_derivative)
