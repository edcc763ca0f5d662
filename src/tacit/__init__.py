"""Contextual bandits that learn from people without exposing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit._version import __version__

if TYPE_CHECKING:
    from tacit.policies.base import Policy
    from tacit.policies.decision import Decision
    from tacit.policies.registry import load, make_policy

__all__ = ["Decision", "Policy", "__version__", "load", "make_policy"]

_HOMES = {
    "Decision": "tacit.policies.decision",
    "Policy": "tacit.policies.base",
    "load": "tacit.policies.registry",
    "make_policy": "tacit.policies.registry",
}


def __getattr__(name: str) -> Any:
    """Import on first use: ``import tacit`` and ``tacit --help`` stay fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
