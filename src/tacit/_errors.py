"""Errors raised by the package; every message states the remedy."""

from __future__ import annotations


class TacitError(Exception):
    """Base of every error the package raises on purpose."""


class InvalidInput(TacitError, ValueError):  # noqa: N818 - reads as a statement at the call site
    """An argument is outside its stated domain."""


class BudgetExceeded(TacitError):  # noqa: N818
    """A release does not fit into what is left of the privacy budget; nothing was recorded or drawn."""


class CorruptState(TacitError):  # noqa: N818
    """A file does not hold a complete saved state."""


class StateInUse(TacitError):  # noqa: N818
    """A saved state has been resumed already."""
