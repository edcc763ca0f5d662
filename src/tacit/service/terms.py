"""What a served policy is told beside its own configuration: how long rewards are waited for, and whom they count
for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, get_args

from tacit._validate import finite, positive
from tacit.errors import InvalidInput

DELETED: Final = "deleted"
Mode = Literal["online", "apprentice", "off", "deleted"]
Settable = Literal["online", "apprentice", "off"]
MODES: Final[tuple[Settable, ...]] = get_args(Settable)
"""Modes that a policy may be switched to; it is deleted by a call of its own, for ever."""
TERMS: Final = "terms"
"""Key under which the terms are kept with a policy's configuration."""
LONGEST_WAIT: Final = 90.0 * 24.0 * 3600.0


@dataclass(frozen=True)
class Terms:
    """How decisions of a policy wait for their rewards.  All of it is public, and never changes."""

    reward_wait: float = 600.0
    """Seconds for which a reward is waited for; time in which the service is down does not count."""
    default_reward: float | None = None
    """What a decision without a reward teaches when its waiting time is over; nothing, unless given."""
    hold: bool = True
    """Whether a reward contributes when its waiting time is over, whenever it came, or as soon as it comes."""
    event_memory: float | None = None
    """Seconds for which ids are known, from the decision on; at least ``reward_wait``, which is the default."""
    user_level: bool = False
    """Whether every decision names its user, of whom the first ``rounds_per_user`` decisions count."""

    def __post_init__(self) -> None:
        for name, value in (("reward_wait", self.reward_wait), ("event_memory", self.memory)):
            if positive(name, value) > LONGEST_WAIT:
                raise InvalidInput(f"{name} must be at most {LONGEST_WAIT:g} seconds (90 days), not {value!r}")
        if self.memory < self.reward_wait:
            raise InvalidInput(f"event_memory must be at least reward_wait={self.reward_wait:g}, not {self.memory:g}")
        if self.default_reward is not None:
            finite("default_reward", self.default_reward)
        for name in ("hold", "user_level"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidInput(f"{name} must be true or false, not {getattr(self, name)!r}")

    @property
    def memory(self) -> float:
        """Seconds for which ids are known."""
        return self.reward_wait if self.event_memory is None else self.event_memory

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)

    @classmethod
    def taken_from(cls, arguments: dict[str, Any]) -> Terms:
        """The terms among the arguments of a policy, which are taken out of them."""
        return cls(**{field.name: arguments.pop(field.name) for field in fields(cls) if field.name in arguments})


def checked_mode(mode: object, known_modes: Sequence[Mode] = MODES) -> Mode:
    """One of the modes; others are refused."""
    for known in known_modes:
        if mode == known:
            return known
    raise InvalidInput(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
