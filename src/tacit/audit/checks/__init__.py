"""Named checks, each of which a certain kind of fault cannot pass; a check returns what it found wrong."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tacit.audit.checks.life import LIFE_CHECKS
from tacit.audit.checks.noise import NOISE_CHECKS
from tacit.audit.checks.protocol import PROTOCOL_CHECKS
from tacit.audit.checks.replays import REPLAY_CHECKS, Check

CHECKS: Final[Mapping[str, Check]] = MappingProxyType(
    {**REPLAY_CHECKS, **NOISE_CHECKS, **LIFE_CHECKS, **PROTOCOL_CHECKS}
)

__all__ = ["CHECKS", "Check"]
