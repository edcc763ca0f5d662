"""Replay of neighbours: one run, the same run with one user's row replaced, and all that differs between them."""

from __future__ import annotations

import math
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from tacit.audit.session import Diverged, Session, watching
from tacit.audit.worlds import NEVER, Row, World
from tacit.errors import InvalidInput
from tacit.policies import registry
from tacit.policies.base import Policy
from tacit.policies.baselines import local_glm
from tacit.policies.decision import Decision
from tacit.policies.rows import RowBuffer
from tacit.privacy.continual import Stream
from tacit.typing import FloatArray

TOLERANCE: Final = 1e-9
_SECRET_OF_STREAM: Final = ("leaf", "nodes")
_RELATIVE, _ABSOLUTE = 1e-6, 1e-8
"""Worlds agree up to the rounding of sums that were taken in another order."""


@dataclass(frozen=True)
class Outcome:
    """What one pair of neighbours showed."""

    mu: float
    """Gaussian-DP parameter that the replaced row was measured to cost."""
    mu_charged: float
    llr: float
    """Log-likelihood ratio of the releases, world 1 against world 0, which made them."""
    shifts: dict[str, float]
    draws: FloatArray
    """Noise in units of its planned standard deviation."""
    divergences: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """Measured over charged; above 1 the ledger is wrong."""
        return self.mu / self.mu_charged if self.mu_charged > 0.0 else math.inf if self.mu > 0.0 else 0.0

    @property
    def sound(self) -> bool:
        """Nothing but releases differs, and they differ by no more than was charged."""
        return not self.divergences and self.ratio <= 1.0 + TOLERANCE


@dataclass
class _Run:
    """A pair of policies on its way through a world."""

    session: Session
    world: World
    rows: tuple[Row, Row] | None = None
    due: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    decisions: dict[tuple[int, int], Decision] = field(default_factory=dict)
    divergences: list[str] = field(default_factory=list)

    def row(self, which: int, user: int) -> Row:
        if user != self.world.user:
            return self.world.row(user)
        assert self.rows is not None
        return self.rows[which]


def replay(first: Policy, second: Policy, world: World, rng: np.random.Generator) -> Outcome:
    """Play ``world`` with both policies, made with the same seed; the second sees the other row.

    Stops at the first divergence: what follows it proves nothing more.
    """
    session = Session([first, second])
    for which in (0, 1):
        session.watch(which)
    with watching(session):
        run = _Run(session, world)
        try:
            _play(run, rng)
            _compare_states(run)
        except Diverged as found:
            run.divergences.append(str(found))
    ledger = session.policies[0].ledger
    assert ledger is not None
    shifts = {kind: cost.shift for kind, cost in session.costs.items()}
    draws = np.concatenate(session.draws) if session.draws else np.zeros(0)
    return Outcome(session.mu, ledger.mu_spent, session.llr, shifts, draws, tuple(run.divergences))


def _play(run: _Run, rng: np.random.Generator) -> None:
    users, group = run.world.arms.shape[0], run.world.group
    for start in range(0, users, group):
        members = range(start, min(start + group, users))
        if run.world.save_at is not None and run.world.save_at in members:
            _save_and_load(run)
        if run.world.user in members:
            run.rows = run.world.adversary(run.session.policies[0], rng, run.world.arms.shape[1])
        _decide(run, list(members))
        _deliver(run, members[-1])
    for late in sorted(now for now in run.due if now >= users):
        _deliver(run, late)


def _decide(run: _Run, members: list[int]) -> None:
    def select(which: int, policy: Policy) -> list[Decision]:
        arms = np.stack([run.row(which, user).arms for user in members])
        return [policy.select(arms[0])] if len(members) == 1 else policy.select_batch(arms)

    both = run.session.both(select)
    for user, first, second in zip(members, *both, strict=True):
        if user != run.world.user and first.arm != second.arm:
            raise Diverged(f"user {user} gets arm {first.arm} in one world and {second.arm} in the other")
        if first.id != second.id:
            raise Diverged(f"decision ids {first.id} and {second.id}")
        for which, decision in enumerate((first, second)):
            run.decisions[which, user] = decision
            delay = run.row(which, user).delay
            if delay != NEVER:
                run.due[members[-1] + delay].append((user, which))
    _compare_ledgers(run)


def _deliver(run: _Run, now: int) -> None:
    for user, which in sorted(run.due.pop(now, ())):
        run.session.world = which
        policy, decision = run.session.policies[which], run.decisions[which, user]
        if user == run.world.user and isinstance(policy.state, local_glm.LocalState):
            _force_report(run, which, decision)
        policy.update(decision, float(run.row(which, user).rewards[decision.arm]))
        if user == run.world.user and run.world.repeat:
            _report_again(policy, decision)


def _report_again(policy: Policy, decision: Decision) -> None:
    try:
        policy.update(decision.id, policy.setting.reward_bound)
    except InvalidInput:
        return
    raise Diverged("a second reward for the same decision was taken in")


def _force_report(run: _Run, which: int, decision: Decision) -> None:
    """What leaves the device is gradient plus noise: noise supplies the difference in world 1."""
    policy = run.session.policies[which]
    dim, state, memo = policy.setting.dim, policy.state, policy._pending.memo(decision.id)
    reward = float(run.row(which, run.world.user).rewards[decision.arm])
    report = np.empty(dim)
    bound, grid, sd = (float(value) for value in state.constants[3:6])
    local_glm.report_gradient(state.counts[3], state.theta, memo[:dim], reward, bound, grid, report)
    if which == 0:
        run.session.record("report", report)
        return
    theirs = run.session.follow("report")
    run.session.cost("report").add(report - theirs, memo[dim:], sd)
    memo[dim:] += theirs - report


def _save_and_load(run: _Run) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for which, policy in enumerate(run.session.policies):
            path = Path(folder) / f"state{which}"
            policy.save(path)
            run.session.policies[which] = registry.load(path)
            run.session.watch(which)


def _compare_ledgers(run: _Run) -> None:
    first, second = (policy.ledger for policy in run.session.policies)
    assert first is not None
    assert second is not None
    if first.entries != second.entries:
        raise Diverged(f"ledger entries differ: {len(first.entries)} and {len(second.entries)}")


def _compare_states(run: _Run) -> None:
    """Everything that decides what others get, raw data aside, must be the same."""
    first, second = (public_arrays(policy.state) for policy in run.session.policies)
    for path, ours in first.items():
        if not np.allclose(ours, second[path], rtol=_RELATIVE, atol=_ABSOLUTE):
            raise Diverged(f"{path} differs between the worlds, though all releases are the same")


def public_arrays(state: Any, prefix: str = "") -> dict[str, FloatArray]:
    """The arrays of a state that depend on data through releases only."""
    arrays: dict[str, FloatArray] = {}
    for name, value in zip(type(state)._fields, state, strict=True):
        if isinstance(value, RowBuffer) or (isinstance(state, Stream) and name in _SECRET_OF_STREAM):
            continue
        if isinstance(value, tuple):
            arrays |= public_arrays(value, f"{prefix}{name}.")
        else:
            # joint-glm: the third of ``calls`` says whether an exploration reward waits, which is raw.
            arrays[prefix + name] = np.asarray(value)[:2] if name == "calls" else np.asarray(value)
    return arrays


@contextmanager
def own_registry() -> Iterator[None]:
    """Tokens of resumed states go to a folder that is thrown away."""
    before = os.environ.get("TACIT_STATE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TACIT_STATE_DIR"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["TACIT_STATE_DIR"]
            else:
                os.environ["TACIT_STATE_DIR"] = before
