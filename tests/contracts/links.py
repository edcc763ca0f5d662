"""Links by what tests call them."""

from __future__ import annotations

from tacit.glm.links import Link, get_link
from tacit.glm.shifted import with_base_rate


def link_called(text: str) -> Link:
    """A link by its name, such as ``probit``, or shifted to a base rate, such as ``probit at 0.08``."""
    name, _, rate = text.partition(" at ")
    return with_base_rate(get_link(name), float(rate) if rate else None)
