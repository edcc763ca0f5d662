"""The links' names, in a file that imports nothing heavy: the command line reads it before it does any work."""

from __future__ import annotations

from typing import Literal

LinkName = Literal["logistic", "probit", "identity", "log"]
"""In the order of ``tacit.glm.links.LINKS``."""
