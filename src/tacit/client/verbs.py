"""The methods of both clients, each described once as a conversation with the service."""

from __future__ import annotations

import functools
import random
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, overload
from urllib.parse import urlsplit

from tacit._validate import integer_at_least, positive
from tacit.client.calls import Call, Conversation, Failure, Outcome, Result, about, encoded, entry_of, outcome_of, path
from tacit.errors import InvalidInput, ServiceRefused, ServiceUnavailable

if TYPE_CHECKING:
    from tacit.client.clients import AsyncClient, Client

_FIRST_PAUSE: Final = 0.05
_MOST_UNSHOWN: Final = 1_000
"""Decisions that wait to be abandoned; more are left to expire by themselves."""
_TOLD_AT_ONCE: Final = 2
"""How many of them are abandoned after a call that was answered, whose caller waits meanwhile."""
_MAKING: Final = 60.0
"""Seconds that the making of a policy may take, apart from the timeout of other calls."""
_OFF: Final = ("switched-off", "deleted")
"""Codes of refusals by a policy that decides nothing, now or any more."""
Arguments = ParamSpec("Arguments")


@dataclass(frozen=True)
class Choice:
    """An arm to show.

    Parameters
    ----------
    arm : int
        Number of the arm, from 0.
    event_id : str
        Id of the decision, by which its reward is reported.
    answered : bool
        Whether the service decided; if not, ``arm`` is the default.
    propensity : float or None
        Probability with which the arm was to be chosen; None where it is unknown.

    Examples
    --------
    >>> from tacit.client import Choice
    >>> Choice(arm=2, event_id="visit-17").answered
    True
    """

    arm: int
    event_id: str
    answered: bool = True
    """False where the service made no decision that is known of, and ``arm`` is the default."""
    propensity: float | None = None
    """Probability with which the arm was to be chosen; None where it is unknown."""


class _Question:
    """A decision that is asked for, and what is shown where there is none."""

    def __init__(self, policy: str, asked: Mapping[str, Any], default_arm: int | None, always: bool) -> None:
        self.policy, self._default_arm, self._always = policy, default_arm, always
        given = {name: value for name, value in asked.items() if value is not None}
        self.event_id = given.setdefault("event_id", secrets.token_urlsafe(18))
        try:
            self.body: bytes | InvalidInput = encoded(given)
        except InvalidInput as error:
            self.body = error

    def choice(self, outcome: Outcome) -> Choice | Failure:
        """The choice that follows from an answer or an error, or the error."""
        if isinstance(outcome, dict):
            return Choice(int(outcome["arm"]), self.event_id, propensity=outcome.get("propensity"))
        off = isinstance(outcome, ServiceRefused) and outcome.code in _OFF
        if self._default_arm is not None and (self._always or off or isinstance(outcome, ServiceUnavailable)):
            return Choice(self._default_arm, self.event_id, answered=False)
        return outcome


class Verb(Generic[Arguments, Result]):
    """A method of both clients, from a function that describes its conversation with the service.

    Called on a `Client` it returns the result of the conversation, on an `AsyncClient` a coroutine.
    """

    def __init__(self, steps: Callable[Concatenate[Any, Arguments], Conversation[Result]]) -> None:
        self._steps = steps

    @overload
    def __get__(self, client: None, kind: type) -> Callable[Concatenate[Any, Arguments], Any]: ...
    @overload
    def __get__(self, client: Client, kind: type) -> Callable[Arguments, Result]: ...
    @overload
    def __get__(self, client: AsyncClient, kind: type) -> Callable[Arguments, Coroutine[Any, Any, Result]]: ...
    def __get__(self, client: Any, kind: type) -> Any:
        if client is None:
            return self._steps
        begin = MethodType(self._steps, client)

        @functools.wraps(begin)
        def call(*arguments: Any, **named: Any) -> Any:
            return client._run(begin(*arguments, **named))

        return call


class Verbs:
    """The methods of both clients."""

    def __init__(self, url: str, key: str, timeout: float, retries: int) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise InvalidInput(f"url must be http://HOST:PORT or https://HOST, not {url!r}")
        self._url, self._timeout = url.rstrip("/"), positive("timeout", timeout)
        self._retries = integer_at_least("retries", retries, 0)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._unshown: deque[Call] = deque(maxlen=_MOST_UNSHOWN)

    @Verb
    def decide(
        self,
        policy: str,
        contexts: Sequence[Sequence[float]] | None = None,
        *,
        user: Mapping[str, Any] | None = None,
        arms: Sequence[Mapping[str, Any]] | None = None,
        event_id: str | None = None,
        user_id: str | None = None,
        default_arm: int | None = None,
        always: bool = False,
    ) -> Conversation[Choice]:
        """Ask for an arm.

        Parameters
        ----------
        policy : str
            Name of the policy.
        contexts : sequence of rows, optional
            One row of numbers for each arm; or ``user`` and ``arms``, where the policy has a schema.
        user, arms : mapping and sequence of mappings, optional
            Record of the user, and one of each arm.
        event_id : str, optional
            The caller's id of the decision; made up by default.
        user_id : str, optional
            Who is decided for, where the policy counts users.
        default_arm : int, optional
            What to show when the service cannot answer, or the policy is switched off or deleted.
        always : bool
            Show the default arm after any other refusal, too.

        Returns
        -------
        Choice
            The arm; ``answered`` is False for the default one.

        Raises
        ------
        ServiceUnavailable
            The service could not answer, and there is no default arm.
        ServiceRefused
            The service refused, for a reason that the default arm is not for.
        InvalidInput
            What is asked cannot be written as JSON, as NaN.
        """
        asked = {"contexts": contexts, "user": user, "arms": arms, "event_id": event_id, "user_id": user_id}
        question = _Question(policy, asked, default_arm, always)
        if isinstance(question.body, InvalidInput):
            found = question.choice(question.body)
        else:
            outcome, lost = yield from self._asking(Call("POST", f"{path(policy)}/decisions", question.body))
            found = self._chosen(question, outcome, lost)
        if isinstance(found, Choice):
            return found
        raise found

    @Verb
    def decide_batch(
        self,
        policy: str,
        requests: Sequence[Mapping[str, Any]],
        *,
        default_arm: int | None = None,
        always: bool = False,
    ) -> Conversation[list[Choice | Failure]]:
        """Ask for an arm for each of many users, at once.

        Parameters
        ----------
        policy : str
            Name of the policy.
        requests : sequence of mappings
            For each user, arguments of `decide`: ``contexts``, or ``user`` and ``arms``; ``event_id``, ``user_id``.
        default_arm : int, optional
            What to show when the service cannot answer, or the policy is switched off or deleted.
        always : bool
            Show the default arm after any other refusal, too.

        Returns
        -------
        list of Choice or TacitError
            For each user the choice, or the error that says why there is none.

        Raises
        ------
        ServiceUnavailable
            The service could not answer, and there is no default arm.
        ServiceRefused
            The service refused the batch as a whole, and the default arm is not for that.
        """
        questions = [_Question(policy, asked, default_arm, always) for asked in requests]
        sent = [question.body for question in questions if isinstance(question.body, bytes)]
        body = b'{"requests":[' + b",".join(sent) + b"]}"
        outcome, lost = yield from self._asking(Call("POST", f"{path(policy)}/decisions:batch", body))
        answers = map(entry_of, outcome["decisions"]) if isinstance(outcome, dict) else repeat(outcome)
        outcomes = [next(answers) if isinstance(question.body, bytes) else question.body for question in questions]
        found = [self._chosen(question, each, lost) for question, each in zip(questions, outcomes, strict=True)]
        if not isinstance(outcome, dict) and outcome in found:
            raise outcome
        return found

    @Verb
    def reward(self, policy: str, event: Choice | str, reward: float) -> Conversation[None]:
        """Report a reward; once is enough, and more often does no harm.  That of a default arm is not sent.

        Parameters
        ----------
        policy : str
            Name of the policy.
        event : Choice or str
            What was decided, or its event id.
        reward : float
            What it has earned.

        Raises
        ------
        ServiceUnavailable
            The service could not answer.
        ServiceRefused
            The event is unknown or too old, or has another reward.
        """
        if isinstance(event, str):
            yield from self._asked(about(policy, event, {"reward": reward}))
        elif event.answered:
            yield from self._asked(about(policy, event.event_id, {"reward": reward, "arm": event.arm}))

    @Verb
    def abandon(self, policy: str, event: Choice | str) -> Conversation[None]:
        """Say that the arm was never shown: the decision teaches nothing.

        Of a default arm nothing is sent: either there is no decision, or it is abandoned without being asked.

        Parameters
        ----------
        policy : str
            Name of the policy.
        event : Choice or str
            What was decided, or its event id.

        Raises
        ------
        ServiceUnavailable
            The service could not answer.
        ServiceRefused
            The event is unknown or too old, or has a reward.
        """
        if isinstance(event, str) or event.answered:
            identity = event if isinstance(event, str) else event.event_id
            yield from self._asked(about(policy, identity, {"abandoned": True}))

    @Verb
    def create(self, name: str, /, policy: str, **arguments: Any) -> Conversation[dict[str, Any]]:
        """Make a policy; the same again changes nothing.

        Parameters
        ----------
        name : str
            What to call it.
        policy : str
            Which one it is, as ``"stream-glm"``.
        **arguments : Any
            What `tacit.make_policy` takes, and terms of the service, as ``reward_wait`` or ``mode``.

        Returns
        -------
        dict
            The policy's document.

        Raises
        ------
        ServiceUnavailable
            The service could not answer.
        ServiceRefused
            No such policy can be made, or there is another one of this name.
        """
        body = encoded({"policy": policy, **arguments})
        return (yield from self._asked(Call("PUT", path(name), body, patience=_MAKING)))

    @Verb
    def mode(self, policy: str, mode: str) -> Conversation[dict[str, Any]]:
        """Change the mode of a policy.

        Parameters
        ----------
        policy : str
            Name of the policy.
        mode : str
            ``"online"``, ``"apprentice"`` (arm 0 is answered, and learned from) or ``"off"`` (none is).

        Returns
        -------
        dict
            The policy's document.

        Raises
        ------
        ServiceUnavailable
            The service could not answer.
        ServiceRefused
            There is no such policy or mode.
        """
        return (yield from self._asked(Call("PUT", f"{path(policy)}/mode", encoded({"mode": mode}))))

    @Verb
    def delete(self, policy: str) -> Conversation[dict[str, Any]]:
        """Erase all of a policy but what is public, for ever; what it has spent stays in the total.

        Parameters
        ----------
        policy : str
            Name of the policy, which is not used again.

        Returns
        -------
        dict
            The policy's document.

        Raises
        ------
        ServiceUnavailable
            The service could not answer.
        ServiceRefused
            There is no such policy.
        """
        return (yield from self._asked(Call("DELETE", path(policy), patience=_MAKING)))

    @Verb
    def policy(self, policy: str) -> Conversation[dict[str, Any]]:
        """Read a policy's configuration, mode, count of decisions and released estimate.

        Parameters
        ----------
        policy : str
            Name of the policy.

        Returns
        -------
        dict
            The policy's document.

        Raises
        ------
        ServiceUnavailable
            The service could not answer.
        ServiceRefused
            There is no such policy.
        """
        return (yield from self._asked(Call("GET", path(policy))))

    @Verb
    def policies(self) -> Conversation[list[dict[str, Any]]]:
        """Read the documents of all policies.

        Returns
        -------
        list of dict
            One for each policy, as `policy` returns it.

        Raises
        ------
        ServiceUnavailable
            The service could not answer.
        """
        found: list[dict[str, Any]] = (yield from self._asked(Call("GET", "/v1/policies")))["policies"]
        return found

    @Verb
    def privacy(self, policy: str | None = None) -> Conversation[dict[str, Any]]:
        """Read the privacy report of a policy, or of the whole deployment.

        Parameters
        ----------
        policy : str, optional
            Name of the policy; all of them together by default.

        Returns
        -------
        dict
            The report.

        Raises
        ------
        ServiceUnavailable
            The service could not answer.
        ServiceRefused
            There is no such policy.
        """
        return (yield from self._asked(Call("GET", f"{'/v1' if policy is None else path(policy)}/privacy")))

    @Verb
    def explain(self, policy: str) -> Conversation[dict[str, Any]]:
        """Read every feature of a policy with its released weight.

        Parameters
        ----------
        policy : str
            Name of the policy.

        Returns
        -------
        dict
            The explanation.

        Raises
        ------
        ServiceUnavailable
            The service could not answer.
        ServiceRefused
            There is no such policy, or it has no released estimate.
        """
        return (yield from self._asked(Call("GET", f"{path(policy)}/explanation")))

    # Parts of conversations

    def _asked(self, call: Call) -> Conversation[dict[str, Any]]:
        """What the service answers to a call."""
        outcome, _ = yield from self._asking(call)
        if isinstance(outcome, dict):
            return outcome
        raise outcome

    def _asking(self, call: Call) -> Conversation[tuple[Outcome, bool]]:
        """The answer or the error, and whether the call may have had an effect that was not reported."""
        lost = False
        for attempt in range(self._retries + 1):
            if attempt:  # spread, so that many clients do not come back at once
                yield _FIRST_PAUSE * 2.0 ** (attempt - 1) * random.uniform(0.5, 1.5)
            outcome = outcome_of((yield call))
            if not isinstance(outcome, ServiceUnavailable):
                yield from self._telling()
                break
            lost = lost or outcome.lost
        return outcome, lost and not isinstance(outcome, dict)

    def _telling(self) -> Conversation[None]:
        """Abandon decisions that were never shown, and that could not be abandoned before."""
        for _ in range(_TOLD_AT_ONCE):
            try:
                left = self._unshown.popleft()
            except IndexError:
                return
            if isinstance(outcome_of((yield left)), ServiceUnavailable):  # a refusal: never made, or over already
                self._unshown.append(left)
                return

    def _chosen(self, question: _Question, outcome: Outcome, lost: bool) -> Choice | Failure:
        """What to show, or the error; a decision that may have been made, and is not shown, will be abandoned."""
        found = question.choice(outcome)
        # After 409 there is none: its answer would have been given again, or the id is that of another decision.
        none = isinstance(outcome, InvalidInput) or (isinstance(outcome, ServiceRefused) and outcome.status == 409)
        if lost and not none and isinstance(found, Choice):
            self._unshown.append(about(question.policy, found.event_id, {"abandoned": True}))
        return found
