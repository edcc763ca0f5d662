"""Clients that decide and reward with ids of their own, and ask again whenever they are not answered."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Final, Literal

from workloads.kills.connection import Address, Answer, Connection
from workloads.kills.findings import Witness
from workloads.kills.world import arms_of, body_of, reward_of

REWARD_WAIT: Final = 1.5
EVENT_MEMORY: Final = 3_600.0
"""Longer than a campaign takes on any machine: a caller that is slow to come back is known all the same."""
_REMEMBERED: Final = 5.0
"""Seconds for which a caller comes back to a decision: the service, whose clock stands while it is down, knows it."""
_REMEMBERED_DECISIONS: Final = 60

Fate = Literal["open", "rewarded", "abandoned", "expired"]


@dataclass
class Asked:
    """A decision that was acknowledged, and what became of it."""

    witness: Witness
    number: int
    since: float
    fate: Fate = "open"

    @property
    def path(self) -> str:
        """Of its reward."""
        return f"/v1/policies/{self.witness.name}/decisions/{self.number}/reward"


class Caller(threading.Thread):
    """One client, with one connection and one thing to do at a time."""

    def __init__(
        self,
        address: Address,
        witnesses: Mapping[str, Witness],
        numbers: itertools.count[int],
        made: threading.Event,
        seed: int,
    ) -> None:
        """``numbers`` are those of new decisions; ``made`` is set when there are policies."""
        super().__init__(daemon=True)
        self._connection, self._witnesses, self._numbers, self._made = Connection(address), witnesses, numbers, made
        self._random = random.Random(seed)
        self._asked: deque[Asked] = deque(maxlen=_REMEMBERED_DECISIONS)
        self._over = threading.Event()

    def stop(self) -> None:
        """Finish what is being asked, and end."""
        self._over.set()

    def run(self) -> None:
        """Make the policies, then decide and reward."""
        try:
            self._make()
            self._made.set()
            while not self._over.is_set():
                self._step()
            for asked in self._known():
                self._decide_again(asked)
                self._tell_again(asked)
        except Exception as error:
            next(iter(self._witnesses.values())).expect(False, f"a caller gave up: {error!r}")
        finally:
            self._connection.close()

    def _make(self) -> None:
        for name, witness in self._witnesses.items():
            body = body_of(name, REWARD_WAIT, EVENT_MEMORY)
            answer = self._connection.insist("PUT", f"/v1/policies/{name}", body)
            self._check(witness, answer, {200, 201}, "making a policy")

    def _step(self) -> None:
        """The next thing to do: something new, or about a decision of a moment ago."""
        draw = self._random.random()
        known = self._known()
        waiting = [asked for asked in known if asked.fate == "open"]
        if draw < 0.4 or not known:
            self._decide(self._random.choice(list(self._witnesses.values())), next(self._numbers))
        elif draw < 0.45:
            self._decide_many(known)
        elif draw < 0.55:
            self._decide_again(self._random.choice(known))
        elif draw < 0.65 or not waiting:
            self._tell_again(self._random.choice(known))
        else:
            self._report(waiting[-1 - int(len(waiting) * self._random.random() ** 2)])  # rather a young one

    def _known(self) -> list[Asked]:
        return [asked for asked in self._asked if time.monotonic() - asked.since < _REMEMBERED]

    # Decisions

    def _decide(self, witness: Witness, number: int) -> None:
        answer = self._connection.insist("POST", f"/v1/policies/{witness.name}/decisions", _question(number))
        if self._check(witness, answer, {201}, f"decision {number}", {200}):
            witness.decided(number, answer.document["arm"])
            self._asked.append(Asked(witness, number, time.monotonic()))

    def _decide_again(self, asked: Asked) -> None:
        """The same is answered as it was; anything else under the same id is refused."""
        path, other = f"/v1/policies/{asked.witness.name}/decisions", self._random.random() < 0.2
        question = _question(asked.number)
        if other:
            question["contexts"] = arms_of(asked.number + 1).tolist()
        answer = self._connection.insist("POST", path, question)
        if self._check(asked.witness, answer, {409 if other else 200}, f"decision {asked.number} again") and not other:
            asked.witness.decided(asked.number, answer.document["arm"])

    def _decide_many(self, known: list[Asked]) -> None:
        """New and old decisions in one request."""
        old = self._random.choice(known)
        witness, fresh = old.witness, [next(self._numbers) for _ in range(self._random.randint(1, 5))]
        body = {"requests": [_question(number) for number in [*fresh, old.number]]}
        answer = self._connection.insist("POST", f"/v1/policies/{witness.name}/decisions:batch", body)
        if not self._check(witness, answer, {200}, "a batch"):
            return
        for number, entry in zip([*fresh, old.number], answer.document["decisions"], strict=True):
            found = answer._replace(status=entry["status"])
            expected = {200} if number == old.number else {201}
            if self._check(witness, found, expected, f"decision {number} of a batch", {200}):
                witness.decided(number, entry["arm"])
                if number != old.number:
                    self._asked.append(Asked(witness, number, time.monotonic()))

    # Rewards

    def _report(self, asked: Asked) -> None:
        """A reward, or that the arm was never shown; some wait a little longer, and some for ever."""
        draw = self._random.random()
        if draw < 0.1:
            self._tell(asked, {"abandoned": True}, "abandoned")
        elif draw < 0.7:
            self._tell(asked, {"reward": reward_of(asked.number)}, "rewarded")

    def _tell(self, asked: Asked, body: dict[str, Any], fate: Fate) -> None:
        answer = self._connection.insist("PUT", asked.path, body)
        if not self._check(asked.witness, answer, {201, 410}, f"{asked.number} {fate}", {200}):
            return
        asked.fate = "expired" if answer.status == 410 else fate
        if answer.status == 410:
            asked.witness.refused(asked.number)
        elif fate == "rewarded":
            asked.witness.rewarded(asked.number)
        else:
            asked.witness.abandoned.add(asked.number)

    def _tell_again(self, asked: Asked) -> None:
        """The same is answered as it was; another reward is refused."""
        if asked.fate == "open":
            return
        other = self._random.random() < 0.2
        same: dict[str, Any] = {"abandoned": True} if asked.fate == "abandoned" else {"reward": reward_of(asked.number)}
        answer = self._connection.insist("PUT", asked.path, {"reward": 0.75} if other else same)
        expected = 410 if asked.fate == "expired" else 409 if other else 200
        self._check(asked.witness, answer, {expected}, f"{asked.number}, {asked.fate}, again")

    def _check(
        self, witness: Witness, answer: Answer, expected: Set[int], what: str, repeated: Set[int] = frozenset()
    ) -> bool:
        """Whether it was answered as expected; ``repeated`` may be answered to what was sent before as well."""
        right = answer.status in expected or (answer.again and answer.status in repeated)
        witness.expect(right, f"{what} was answered with {answer.status}: {answer.body[:200]!r}")
        return right


def _question(number: int) -> dict[str, Any]:
    return {"event_id": str(number), "contexts": arms_of(number).tolist()}
