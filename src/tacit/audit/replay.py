"""Replay of neighbours: one run, the same run with one user's row replaced, and all that differs between them."""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from tacit.audit.joint_draws import DrawRecord
from tacit.audit.session import SHUFFLED, Cost, Diverged, Session
from tacit.audit.statistics import loss_mu
from tacit.audit.worlds import UserRow, World, neighbours
from tacit.environments.arrivals import NEVER
from tacit.errors import AlreadyRewarded, ExpiredDecision
from tacit.policies import registry
from tacit.policies.decision import Decision
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.state import public_part
from tacit.privacy.events import NoisySum, PrivacyEvent, RenyiRelease
from tacit.privacy.gaussian import mu_from
from tacit.privacy.ledger import Entry, Ledger

TOLERANCE: Final = 1e-9
_NOTHING_CHARGED: Final = 1e-300
_CALL: Final = re.compile(r"(optimizer call \d+), (theta_o|theta_tau)")


@dataclass(frozen=True)
class PairOutcome:
    """The result of replaying one pair of neighbours."""

    mu: float
    """Gaussian-DP parameter that the replaced row was measured to cost."""
    mu_charged: float
    llr: float
    """Log-likelihood ratio of the releases, world 1 against world 0, which made them."""
    kinds: dict[str, float]
    """Measured over charged for each kind of charge that the row changed (`kind_ratios`)."""
    draws: tuple[DrawRecord, ...]
    """Noise in units of its planned standard deviation, by kind."""
    steps: float = math.inf
    """Smallest standard deviation of exact noise, in steps of its grid."""
    divergences: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """Measured over charged; above 1 the ledger is wrong."""
        return self.mu / self.mu_charged if self.mu_charged > 0.0 else math.inf if self.mu > 0.0 else 0.0

    @property
    def worst(self) -> float:
        """The largest ratio, in all or of one kind: no kind of charge may be exceeded, even if others have room."""
        return max(self.ratio, *self.kinds.values(), 0.0)

    @property
    def sound(self) -> bool:
        """Nothing but releases differs, and they differ by no more than was charged."""
        return not self.divergences and bool(self.worst <= 1.0 + TOLERANCE)  # not so when it is NaN


@dataclass
class _Run:
    """A pair of policies on its way through a world."""

    session: Session
    world: World
    rows: tuple[UserRow, ...] = ()
    """Rows of the replaced user in both worlds; chosen when that user arrives."""
    due: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    decisions: dict[tuple[int, int], Decision] = field(default_factory=dict)
    divergences: list[str] = field(default_factory=list)

    def row(self, which: int, user: int) -> UserRow:
        if user != self.world.user:
            return self.world.row(user)
        return self.rows[which]


def replay(first: PrivatePolicy, second: PrivatePolicy, world: World, rng: np.random.Generator) -> PairOutcome:
    """Play ``world`` with both policies, made with the same seed, and measure; the second sees the other row."""
    return outcome_of(*play_both(first, second, world, rng))


def play_both(
    first: PrivatePolicy, second: PrivatePolicy, world: World, rng: np.random.Generator
) -> tuple[Session, list[str]]:
    """Play ``world`` with both policies; the session that watched them, and how the worlds diverged.

    Stops at the first divergence: what follows it proves nothing more.
    """
    session = Session([first, second])
    run = _Run(session, world)
    try:
        _play(run, rng)
        _compare(run, reports=True)
        _compare_scales(session)
    except Diverged as found:
        run.divergences.append(str(found))
    return session, run.divergences


def outcome_of(session: Session, divergences: Sequence[str]) -> PairOutcome:
    """What a session has measured, against what the ledger of its first world has charged."""
    ledger, budget = session.policies[0].ledger, session.policies[0].setting.budget
    # Shuffled sums are judged by their own privacy loss at the budget's delta, so the claim is that of the budget.
    shuffled = session.policies[0].guarantee == "shuffle"
    return PairOutcome(
        mu=session.mu(budget.delta),
        mu_charged=mu_from(budget.epsilon, budget.delta) if shuffled else ledger.mu_spent,
        llr=session.llr,
        kinds=kind_ratios(session.costs, ledger, budget.delta),
        draws=tuple(session.draws),
        steps=session.steps,
        divergences=tuple(divergences),
    )


def _compare_scales(session: Session) -> None:
    """Every release has noise of the standard deviation that some ledger entry of its kind states."""
    ledger = session.policies[0].ledger
    for kind, sds in session.sds.items():
        match = _CALL.fullmatch(kind)
        events = [e.event for e in ledger.entries if e.event.name.startswith("optimizer call") == bool(match)]
        stated = [e.noise_sd for e in events if not match or e.name.startswith(f"{match[1]},")]
        for sd in sds:
            if not any(s is not None and math.isclose(s, sd, rel_tol=1e-9) for s in stated):
                raise Diverged(f"{kind}: noise of standard deviation {sd:.6g}, charged as {stated}")


def kind_ratios(costs: dict[str, Cost], ledger: Ledger, delta: float) -> dict[str, float]:
    """Measured over charged for the stream, calls of either optimizer, movers between them, reports, shuffled sums.

    Call k of both optimizers is one charge.  A row that changes the sum of one side alone was replaced there; one that
    changes both has moved.
    """
    calls: dict[str, dict[str, Cost]] = defaultdict(dict)
    ratios: dict[str, float] = {}
    for kind, cost in costs.items():
        if match := _CALL.fullmatch(kind):
            calls[match[1]][match[2]] = cost
        elif kind.startswith(SHUFFLED):
            label, name = kind.removeprefix(SHUFFLED), f"{SHUFFLED}of {kind.split('/')[1]}"
            ratios[name] = max(ratios.get(name, 0.0), loss_mu(cost.pairs, delta) / _charged(ledger, label, exact=True))
        elif cost.squared > 0.0:
            ratios[kind] = cost.mu / _charged(ledger, "")
    for call, sides in calls.items():
        changed = [side for side, cost in sides.items() if cost.squared > 0.0]
        if changed:
            measured = math.sqrt(math.fsum(sides[side].squared for side in changed))
            name = "movers" if len(changed) == 2 else changed[0]
            ratios[name] = max(ratios.get(name, 0.0), measured / _charged(ledger, call))
    return ratios


def _charged(ledger: Ledger, name: str, *, exact: bool = False) -> float:
    """mu of one release of the entries of a name, or else of the largest entry that is no optimizer call.

    Entries of several epochs have the same mu; that each has the noise it states, `_compare_scales` sees to.  A row
    that moves from one cohort to another is in both, which the ledger charges by their moving costs.
    """
    events = [entry.event for entry in ledger.entries]
    if exact:
        found = [_single_mu(event) for event in events if name in (event.name, f"{event.name}/{name.split('/')[-1]}")]
    elif name:
        found = [_mu(event) for event in events if event.name.startswith(f"{name},")]
    else:
        entries = [entry for entry in ledger.entries if not entry.event.name.startswith("optimizer call")]
        found = [*(_mu(entry.event) for entry in entries), _moved_mu(entries)]
    return max(found, default=0.0) or _NOTHING_CHARGED


def _moved_mu(entries: Sequence[Entry]) -> float:
    """mu of a row that leaves one entry and enters another, of those two cohorts in which that costs most."""
    costs: dict[str, float] = {}
    for entry in entries:
        if entry.cohort is not None and isinstance(entry.event, NoisySum):
            costs[entry.cohort] = max(entry.event.moving_cost, costs.get(entry.cohort, 0.0))
    return math.sqrt(math.fsum(sorted(costs.values())[-2:])) if len(costs) > 1 else 0.0


def _mu(event: PrivacyEvent) -> float:
    """Gaussian-DP parameter of an entry; a Renyi curve of the package's own is a Gaussian's, a mu^2 / 2."""
    if isinstance(event, RenyiRelease):
        return math.sqrt(2.0 * event.divergences[0] * event.count / event.orders[0])
    return event.mu


def _single_mu(event: PrivacyEvent) -> float:
    return _mu(event) / math.sqrt(event.count)


def _play(run: _Run, rng: np.random.Generator) -> None:
    users, group = run.world.arms.shape[0], run.world.group
    for start in range(0, users, group):
        members = range(start, min(start + group, users))
        if run.world.save_at is not None and run.world.save_at in members:
            _save_and_load(run)
        if run.world.user in members:
            run.rows = neighbours(run.world, run.session.policies[0], rng)
        _decide(run, list(members))
        _deliver(run, members[-1])
    for late in sorted(now for now in run.due if now >= users):
        _deliver(run, late)


def _decide(run: _Run, members: list[int]) -> None:
    def select(which: int, policy: PrivatePolicy) -> list[Decision]:
        arms = np.stack([run.row(which, user).arms for user in members])
        answers = [policy.select(arms[0])] if len(members) == 1 else policy.select_batch(arms)
        return [answer for answer in answers if isinstance(answer, Decision)]

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
    _compare(run)


def _deliver(run: _Run, now: int) -> None:
    for user, which in sorted(run.due.pop(now, ())):
        run.session.world = which
        policy, decision = run.session.policies[which], run.decisions[which, user]
        try:
            policy.update(decision, float(run.row(which, user).rewards[decision.arm]))
        except ExpiredDecision:  # too late, which is a matter of the clock: a reward that never comes
            continue
        if user == run.world.user and run.world.repeat:
            _report_again(policy, decision)
    _compare(run)


def _report_again(policy: PrivatePolicy, decision: Decision) -> None:
    try:
        policy.update(decision.id, policy.setting.reward_bound)
    except (AlreadyRewarded, ExpiredDecision):
        return
    raise Diverged("a second reward for the same decision was taken in")


def _save_and_load(run: _Run) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for which, policy in enumerate(run.session.policies):
            path = Path(folder) / f"state{which}"
            policy.save(path)
            run.session.policies[which] = load_private(path)
            run.session.watch(which)
    _compare(run)


def load_private(path: Path, *, recover: bool = False) -> PrivatePolicy:
    """The private policy of a saved state."""
    policy = registry.load(path, recover=recover)
    if not isinstance(policy, PrivatePolicy):
        raise Diverged("a private policy was saved, and another one loaded")
    return policy


def _compare(run: _Run, *, reports: bool = False) -> None:
    """Raise unless everything that others may see is equal in both worlds, byte for byte, given equal releases."""
    first, second = run.session.policies
    if first.public_fingerprint() == second.public_fingerprint() and not reports:
        return
    if first.ledger.entries != second.ledger.entries:
        raise Diverged(f"ledger entries differ: {len(first.ledger.entries)} and {len(second.ledger.entries)}")
    ours, theirs = public_part(first.state), public_part(second.state)
    for path in ours:
        if ours[path].tobytes() != theirs[path].tobytes():
            raise Diverged(f"{path} differs between the worlds, though all releases are the same")
    if first.decisions != second.decisions or str(first.privacy) != str(second.privacy):
        raise Diverged("clock or privacy report differ between the worlds, though all releases are the same")


@contextmanager
def own_registry() -> Iterator[None]:
    """A context in which tokens of resumed states go to a temporary folder."""
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
