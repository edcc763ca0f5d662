"""Contextual bandits that learn from people without exposing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit._version import __version__

if TYPE_CHECKING:
    from tacit.environments import register_environment
    from tacit.glm.links import register_link
    from tacit.policies.decision import Decision
    from tacit.policies.policy import Policy
    from tacit.policies.private_policy import PrivatePolicy
    from tacit.policies.registry import load, make_policy, policy_class, register_policy, restore
    from tacit.service.durable import DurablePolicy
    from tacit.service.durable import open_policy as open

__all__ = [
    "Decision",
    "DurablePolicy",
    "Policy",
    "PrivatePolicy",
    "__version__",
    "load",
    "make_policy",
    "open",
    "policy_class",
    "register_environment",
    "register_link",
    "register_policy",
    "restore",
]

_HOMES = {
    "Decision": "tacit.policies.decision",
    "DurablePolicy": "tacit.service.durable",
    "Policy": "tacit.policies.policy",
    "PrivatePolicy": "tacit.policies.private_policy",
    "load": "tacit.policies.registry",
    "make_policy": "tacit.policies.registry",
    "open": "tacit.service.durable:open_policy",
    "policy_class": "tacit.policies.registry",
    "register_environment": "tacit.environments",
    "register_link": "tacit.glm.links",
    "register_policy": "tacit.policies.registry",
    "restore": "tacit.policies.registry",
}


def __getattr__(name: str) -> Any:
    """Import on first use: ``import tacit`` and ``tacit --help`` stay fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _HOMES[name].partition(":")
    value = getattr(import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
