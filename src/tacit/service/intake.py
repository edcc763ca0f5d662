"""From what a caller sends to a request of a host: stamped, checked, encoded and hashed, without touching any state.

Everything here is a function of the request, of when it came and of public configuration, and may be done by any
thread.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tacit.errors import InvalidInput
from tacit.policies.admission import ArmForm, admit_reward
from tacit.service.events import Hashes
from tacit.service.host import Decide, Reward
from tacit.service.terms import Terms

LONGEST_ID: Final = 256
_NO_USER: Final = b""


class Intake:
    """What is asked of one policy, as requests of its host."""

    def __init__(self, form: ArmForm, terms: Terms, hashes: Hashes, most_arms: int, clock: Callable[[], float]) -> None:
        self._form, self._terms, self._hashes, self._most_arms, self._clock = form, terms, hashes, most_arms, clock

    def decision(
        self,
        namespace: str,
        *,
        contexts: Sequence[Sequence[float]] | None = None,
        user: Mapping[str, Any] | None = None,
        arms: Sequence[Mapping[str, Any]] | None = None,
        event_id: str | None = None,
        user_id: str | None = None,
        stamp: float | None = None,
    ) -> tuple[str, Decide]:
        """The id of a decision, made up where the caller has none, and the request for it.

        ``stamp`` is when the call arrived that it is part of; now by default.
        """
        stamp = self._clock() if stamp is None else stamp
        identity = secrets.token_urlsafe(18) if event_id is None else checked_id("event_id", event_id)
        asked = contexts if contexts is not None else arms
        if asked is not None and len(asked) > self._most_arms:
            raise InvalidInput(f"at most {self._most_arms} arms are taken, not {len(asked)}")
        block = self._form.one(contexts, user, arms)
        person = self._user(user_id)
        content = self._hashes.of(b"content", block.tobytes(), person or _NO_USER)
        return identity, Decide(self._hashes.event(namespace, identity), content, block, stamp, person)

    def _user(self, user_id: str | None) -> bytes | None:
        if user_id is not None:
            user_id = checked_id("user_id", user_id)
        if not self._terms.user_level:
            return None
        if user_id is None:
            raise InvalidInput("user_id is missing: this policy protects users, and counts the decisions of each")
        return self._hashes.user(user_id)

    def reward(
        self,
        namespace: str,
        event_id: str,
        *,
        reward: float | None,
        abandoned: bool = False,
        arm: int | None = None,
        stamp: float | None = None,
    ) -> Reward:
        """The request that reports a reward, or that the arm was never shown; ``stamp`` is as for a decision."""
        stamp = self._clock() if stamp is None else stamp
        event = self._hashes.event(namespace, checked_id("event_id", event_id))
        if abandoned == (reward is not None):
            raise InvalidInput("give a reward, or say that the decision is abandoned")
        value = None if reward is None else admit_reward(reward, self._form.setting)
        return Reward(event, value, stamp, arm)


def checked_id(name: str, value: object) -> str:
    """An id of a caller's: text of 1 to 256 characters."""
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_ID:
        raise InvalidInput(f"{name} must be text of 1 to {LONGEST_ID} characters")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{name} must be text that can be written as UTF-8") from error
    return value
