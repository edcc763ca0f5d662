"""Replay of neighbours through a whole service: what others are sent, and where rows go, for another row of one user.

A world is a script: at public times users ask, alone or in batches, the service has its beats, upkeep, crashes,
restarts and restores, and readers look.  Rewards come in between, at any time.  The neighbour has another row for one
user: arms, reward and delay.  World 1 is played with the releases of world 0, as in `tacit.audit.session`; what its
exact sums differ by is what the row costs, and everything that other users are sent must be the same, byte for byte.

The service is driven through `AuditedService` alone.  Calls are carried out in groups whose size counts rewards, so
that the neighbour's groups are others: nothing may depend on them.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tacit.audit.replay import PairOutcome, outcome_of
from tacit.audit.session import Diverged, Follower, Recorder, Session, WatchedNoise
from tacit.errors import InvalidInput
from tacit.policies.log import LoggingPublisher
from tacit.policies.policy import Policy
from tacit.policies.private_policy import PrivatePolicy
from tacit.typing import FloatArray

OTHERS, REPLACED = "others", "replaced"
"""Callers, each with a separate namespace: all other users, and the one whose row is replaced."""
Contexts = Sequence[Sequence[float]]


class AuditedService(Protocol):
    """One served policy, call by call, under a clock that is set by hand.

    Calls *arrive* at the time of the clock and are carried out by ``answers``, in one group where the service makes
    groups.  The service calls what it was given as ``watch`` with its policy whenever it begins to serve it.
    """

    now: float
    """Seconds; they never go back."""

    def decide(self, caller: str, event_id: str, contexts: Contexts, user_id: str) -> None: ...
    def decide_batch(self, caller: str, asked: Sequence[tuple[str, Contexts, str]]) -> None: ...
    def reward(self, caller: str, event_id: str, reward: float | None) -> None: ...
    def answers(self) -> Sequence[bytes]:
        """What each caller is sent, in the order of arrival."""

    def look(self) -> Mapping[str, bytes]:
        """Everything that a reader is shown."""

    def tick(self) -> None: ...
    def tend(self) -> None: ...
    def crash(self) -> None: ...
    def restart(self) -> None: ...
    def restore(self) -> None: ...
    def close(self) -> None: ...


OpenService = Callable[[Path, Mapping[str, Any], Callable[[Policy], None]], AuditedService]
"""Begins a service in a folder, from what a policy is made of (`PUT /v1/policies/{name}`) and who watches it."""


@dataclass(frozen=True)
class Visitor:
    """The arms, reward and delay of one user.

    A delay of None is a reward that never comes, a reward of None an arm that was never shown.
    """

    arms: FloatArray
    reward: float | None
    delay: float | None


@dataclass(frozen=True)
class Step:
    """Something public at a time: users ask (in one call if they are several), or something happens to the service."""

    time: float
    kind: str
    """``ask``, or a method of `AuditedService`: ``look``, ``tick``, ``tend``, ``crash``, ``restart``, ``restore``."""
    users: tuple[int, ...] = ()


@dataclass(frozen=True)
class Script:
    """A world, and the two rows of the user who is replaced."""

    body: Mapping[str, Any]
    """What the policy is made of."""
    rows: Mapping[int, Visitor]
    steps: Sequence[Step]
    replaced: int
    neighbours: tuple[Visitor, Visitor]
    group: int = 1
    """Calls that are carried out together, rewards included."""
    visitors: int | None = None
    """Number of persons, who return as several users; None where each user is another person."""

    def row(self, world: int, user: int) -> Visitor:
        """The row of a user in one of the two worlds."""
        return self.neighbours[world] if user == self.replaced else self.rows[user]


class ServedSession(Session):
    """A session whose worlds are played one after the other, each by a service that may begin several times."""

    def __init__(self) -> None:
        super().__init__([])

    def __post_init__(self) -> None:
        """Nothing is watched yet."""

    def begin(self, world: int) -> Callable[[Policy], None]:
        """Begin the next world; returns a function to be called with every policy that the world begins to serve."""
        self.world = world

        def watch(policy: Policy) -> None:
            if not isinstance(policy, PrivatePolicy) or not isinstance(policy.publisher, LoggingPublisher):
                raise InvalidInput("a service keeps a log of a private policy")
            self.policies = [*self.policies[:world], policy]
            watched = Recorder(self) if world == 0 else Follower(self)
            policy.publisher = LoggingPublisher(policy.publisher.sink, watched)
            if policy.guarantee != "shuffle":
                sources = policy.randomness
                ticks, events = (WatchedNoise(getattr(sources, name), self, name) for name in ("ticks", "events"))
                policy.randomness = replace(sources, ticks=ticks, events=events)

        return watch


@dataclass
class _Life:
    """A world on its way through a script; ``sent`` is everything that users other than the replaced one get to see."""

    service: AuditedService
    script: Script
    world: int
    sent: list[tuple[str, bytes]] = field(default_factory=list)
    _waiting: list[str] = field(default_factory=list)

    def play(self) -> None:
        asked = {user: step.time for step in self.script.steps for user in step.users}
        rewards = [(self._comes(user, time), user) for user, time in asked.items()]
        coming = sorted(pair for pair in rewards if math.isfinite(pair[0]))
        for step in self.script.steps:
            while coming and coming[0][0] < step.time:
                self._report(*coming.pop(0))
            self.service.now = max(self.service.now, step.time)
            self._take(step)
        for time, user in coming:
            self._report(time, user)
        self._take(Step(self.service.now, "look"))

    def _comes(self, user: int, asked: float) -> float:
        delay = self.script.row(self.world, user).delay
        return math.inf if delay is None else asked + delay

    def _report(self, time: float, user: int) -> None:
        self.service.now = max(self.service.now, time)
        self.service.reward(self._caller(user), _event(user), self.script.row(self.world, user).reward)
        self._arrived(f"reward of {user}")

    def _caller(self, user: int) -> str:
        return REPLACED if user == self.script.replaced else OTHERS

    def _take(self, step: Step) -> None:
        if step.kind == "ask":
            self._ask(step.users)
            return
        self._carry_out()
        if step.kind == "look":
            self.sent += [(f"{path} at {step.time:g}", shown) for path, shown in sorted(self.service.look().items())]
        else:
            getattr(self.service, step.kind)()

    def _ask(self, users: tuple[int, ...]) -> None:
        people = self.script.visitors
        asked = [
            (
                _event(user),
                self.script.row(self.world, user).arms.tolist(),
                f"person {user % people if people else user}",
            )
            for user in users
        ]
        caller, label = self._caller(users[0]), f"decision of {users[0]}"
        if len(asked) > 1:
            self.service.decide_batch(caller, asked)
        else:
            self.service.decide(caller, *asked[0])
        self._arrived(label)

    def _arrived(self, label: str) -> None:
        self._waiting.append(label)
        if len(self._waiting) >= self.script.group:
            self._carry_out()

    def _carry_out(self) -> None:
        labels, self._waiting = self._waiting, []
        own = {f"{kind} of {self.script.replaced}" for kind in ("decision", "reward")}
        answered = zip(labels, self.service.answers(), strict=True)
        self.sent += [(label, answer) for label, answer in answered if label not in own]


def _event(user: int) -> str:
    return f"event {user}"


def replay_service(open_service: OpenService, script: Script) -> PairOutcome:
    """Play each world of a script through a separate service, and compare; stops at the first divergence."""
    session, lives = ServedSession(), list[_Life]()
    divergences: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for world in (0, 1):
                service = open_service(Path(folder) / str(world), script.body, session.begin(world))
                try:
                    lives.append(_Life(service, script, world))
                    lives[-1].play()
                finally:
                    service.close()
            _compare(*(sorted(life.sent) for life in lives))
            session.settle()
        except Diverged as found:
            divergences.append(str(found))
    return outcome_of(session, divergences)


def _compare(first: Sequence[tuple[str, bytes]], second: Sequence[tuple[str, bytes]]) -> None:
    """Raise unless others were sent the same in both worlds; when it was sent may differ."""
    for (what, ours), (_, theirs) in zip(first, second, strict=True):  # as many calls, by the script
        if ours != theirs:
            place = next((i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), 0)
            near = slice(max(0, place - 30), place + 30)
            raise Diverged(f"{what} differs between the worlds: {ours[near]!r} and {theirs[near]!r}")
