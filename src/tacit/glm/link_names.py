"""The links' names, in a file that imports nothing heavy: the command line reads it before it does any work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

LinkName = Literal["logistic", "probit", "identity", "log"]
"""The package's links, in the order of ``tacit.glm.links.LINKS``."""

_names: list[str] = list(get_args(LinkName))
LINK_NAMES: Sequence[str] = _names
"""Every link that is known now: the package's, then those that were registered, in their order."""


def add_link_name(name: str) -> None:
    """Called by ``tacit.glm.links.register_link``."""
    if name not in _names:
        _names.append(name)
