"""What callers send and get, as types: bodies are decoded strictly, and unknown fields are refused.

Numbers must be numbers: text, truth values, NaN and infinities are refused (JSON has no word for the latter).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta
from starlette.responses import Response

from tacit.service.http.keys import LEAST_RATE, MOST_PATTERNS, MOST_RATE, NAME, PATTERN, Scope
from tacit.service.http.problems import COMMON, JSON, Problem
from tacit.service.intake import LONGEST_ID
from tacit.service.terms import Mode, Settable

Body = TypeVar("Body")
Identity = Annotated[str, Meta(min_length=1, max_length=LONGEST_ID)]
Name = Annotated[str, Meta(pattern=NAME)]
Pattern = Annotated[str, Meta(pattern=PATTERN)]


class DecisionBody(msgspec.Struct, forbid_unknown_fields=True):
    """A question for an arm: rows of numbers, or records where the policy has a schema."""

    contexts: list[list[float]] | None = None
    user: dict[str, Any] | None = None
    arms: list[dict[str, Any]] | None = None
    event_id: Identity | None = None
    user_id: Identity | None = None


class BatchBody(msgspec.Struct, forbid_unknown_fields=True):
    """Many questions; each is checked by itself."""

    requests: list[msgspec.Raw]


class RewardBody(msgspec.Struct, forbid_unknown_fields=True):
    """A reward, or that the arm was never shown."""

    reward: float | None = None
    abandoned: bool = False
    arm: Annotated[int, Meta(ge=0, le=1 << 31)] | None = None


class KeyBody(msgspec.Struct, forbid_unknown_fields=True):
    """A key to be made."""

    name: Name
    scopes: Annotated[list[Scope], Meta(min_length=1)]
    namespace: Name = "default"
    rate: Annotated[float, Meta(ge=LEAST_RATE, le=MOST_RATE)] | None = None
    policies: Annotated[list[Pattern], Meta(min_length=1, max_length=MOST_PATTERNS)] | None = None
    """Names and patterns (`news-*`) of the policies that it is bound to; null for all."""


class PolicyBody(msgspec.Struct):
    """The arguments of `make_policy`, of which these are the usual ones, and the terms; all but `mode` never change."""

    policy: str
    dim: Annotated[int, Meta(ge=1)] | None = None
    features: dict[str, Any] | None = None
    link: str = "logistic"
    theta_bound: Annotated[float, Meta(gt=0)] = 1.0
    horizon: Annotated[int, Meta(ge=1)] | None = None
    epsilon: Annotated[float, Meta(gt=0)] | None = None
    delta: Annotated[float, Meta(gt=0, lt=1)] | None = None
    rounds_per_user: Annotated[int, Meta(ge=1)] = 1
    reward_wait: float = 600.0
    default_reward: float | None = None
    hold: bool = True
    event_memory: float | None = None
    user_level: bool = False
    mode: Settable = "online"


class ModeBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new mode for a policy."""

    mode: Settable


class RewardAnswer(msgspec.Struct):
    """An answer to a reward: the arm that it is for."""

    event_id: str
    arm: int


class DecisionAnswer(RewardAnswer):
    """An arm, and the probability with which it was to be chosen; null where that is unknown."""

    propensity: float | None


class BatchEntry(msgspec.Struct, kw_only=True, rename={"kind": "type"}):
    """A decision of a batch (`event_id`, `arm`, `propensity`), or why there is none (`type`, `title`, `detail`)."""

    status: int
    event_id: str | msgspec.UnsetType = msgspec.UNSET
    arm: int | msgspec.UnsetType = msgspec.UNSET
    propensity: float | msgspec.UnsetType | None = msgspec.UNSET
    kind: str | msgspec.UnsetType = msgspec.UNSET
    title: str | msgspec.UnsetType = msgspec.UNSET
    detail: str | msgspec.UnsetType = msgspec.UNSET


class BatchAnswer(msgspec.Struct):
    """One entry for each request, in the same order."""

    decisions: list[BatchEntry]


class PolicyDocument(msgspec.Struct):
    """A policy as keys with scope `read` see it: configuration, releases and public counts."""

    name: str
    policy: str
    config: dict[str, Any]
    terms: dict[str, Any]
    mode: Mode
    decisions: int
    releases: int
    estimate: list[float] | None
    health: dict[str, Any]


class PolicyList(msgspec.Struct):
    """All policies."""

    policies: list[PolicyDocument]


class KeyDocument(msgspec.Struct):
    """A key without its secret part."""

    name: str
    scopes: list[str]
    namespace: str
    created: str
    rate: float | None
    """Requests per second; null for that of the service (`key_rate`)."""
    policies: list[str] | None
    """Names and patterns of the policies that it is bound to; null for a key that reaches all."""


class NewKey(KeyDocument):
    """A key that was just made: the only time that it is shown."""

    key: str = ""


class KeyList(msgspec.Struct):
    """All keys."""

    keys: list[KeyDocument]


class Health(msgspec.Struct):
    """A public code: `ok`, or why not."""

    status: str


class ReleasePoint(msgspec.Struct):
    """A release: after how many decisions, when, and the mean reward of the best arm by what was released."""

    decisions: int
    time: float
    best_reward: float | None


class ModePoint(msgspec.Struct):
    """A change of mode: its number, when, after how many decisions, and the new mode."""

    number: int
    time: float
    decisions: int
    mode: Mode


class History(msgspec.Struct):
    """The newest releases and the newest changes of mode, oldest first."""

    releases: list[ReleasePoint]
    modes: list[ModePoint]


class TotalPrivacy(msgspec.Struct):
    """What all policies have spent together on a person who is in each of them; null where it has no bound.

    `epsilon` holds at `delta`, with what it costs that exact noise is discrete, and for all lives of policies that
    count users.  `mu` is the square root of the sum of the policies' squares, `mu_across_lives` in their reports.
    """

    mu: float | None
    epsilon: float | None
    delta: float | None
    policies: dict[str, dict[str, Any]]


DECISION: Final = msgspec.json.Decoder(DecisionBody)
BATCH: Final = msgspec.json.Decoder(BatchBody)
REWARD: Final = msgspec.json.Decoder(RewardBody)
KEY: Final = msgspec.json.Decoder(KeyBody)
MODE: Final = msgspec.json.Decoder(ModeBody)
POLICY: Final = msgspec.json.Decoder(dict[str, Any])
encode: Final = msgspec.json.Encoder().encode


def decoded(decoder: msgspec.json.Decoder[Body], data: bytes | msgspec.Raw) -> Body:
    """Return what a body says, or raise a problem."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:  # JSON of another form than it should have
        raise Problem(422, "invalid", str(error)) from error
    except RecursionError as error:
        raise Problem(400, "not-json", "the body is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, "not-json", f"the body is not JSON: {error}") from error


def answer(document: Any, status: int = 200) -> Response:
    """Return a document as an answer in JSON."""
    return Response(encode(document), status, COMMON, JSON)
