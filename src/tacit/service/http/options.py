"""Options of a service: where it listens and what it bounds.  A configuration file has the same names."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from tacit.errors import InvalidInput
from tacit.service.deployment import MOST_ARMS

ADDRESS_FILE: Final = "address"
"""Beside the store while it is served: where `tacit keys` finds the service."""
_LARGEST_PORT: Final = 65_535


def _bound(about: str, default: Any) -> Any:
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True)
class Options:
    """All options of `tacit serve`."""

    data: str = _bound("Folder of the store; made if it is missing.", "tacit-data")
    database: str = _bound("URL of a PostgreSQL database, in place of a store in the folder.", "")
    host: str = _bound("Address to listen on.", "127.0.0.1")
    port: int = _bound("Port to listen on; 0 picks a free one.", 8_470)
    body_bytes: int = _bound("Longest body of a request, in bytes.", 1 << 20)
    most_arms: int = _bound("Most arms of a decision.", MOST_ARMS)
    most_dim: int = _bound("Most features of a policy: its state has their square.", 1_000)
    most_policies: int = _bound("Most policies of the deployment.", 200)
    most_batch: int = _bound("Most decisions of a batch.", 1_000)
    most_waiting: int = _bound("Requests that may wait for the writer, and as many rewards; others get 503.", 4_000)
    most_connections: int = _bound("Connections at a time; at most a quarter of the files that may be open.", 1_000)
    key_rate: int = _bound("Requests per second of a key that has no rate of its own; others get 429.", 50_000)
    most_live: int = _bound("Live streams at a time.", 100)
    head_seconds: float = _bound("Seconds that a client has for sending the head of a request.", 10.0)
    body_seconds: float = _bound("Seconds that a client has for sending a body.", 10.0)
    idle_seconds: float = _bound("Seconds after which an idle connection is closed.", 60.0)
    stop_seconds: float = _bound("Seconds that open requests have when the service stops.", 20.0)
    log_requests: bool = _bound("Whether each request is logged, those that report rewards aside.", True)

    def __post_init__(self) -> None:
        for known in fields(self):
            _check(known.name, getattr(self, known.name), type(known.default))
        if self.port > _LARGEST_PORT:
            raise InvalidInput(f"port must be at most {_LARGEST_PORT}, not {self.port}")

    def changed(self, values: Mapping[str, Any]) -> Options:
        """Return a copy with these values; refuse an unknown name."""
        known = {known.name for known in fields(self)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise InvalidInput(f"unknown: {', '.join(unknown)}; options are {', '.join(sorted(known))}")
        return replace(self, **values)


def _check(name: str, value: object, kind: type) -> None:
    """Refuse a value of another kind than the default's, and numbers below 1; a port may be 0."""
    wide = (int, float) if kind is float else (kind,)
    if not isinstance(value, wide) or (isinstance(value, bool) and kind is not bool):
        raise InvalidInput(f"{name} must be {_KINDS[kind]}, not {value!r}")
    if kind is int and isinstance(value, int) and value < (0 if name == "port" else 1):
        raise InvalidInput(f"{name} must be at least {0 if name == 'port' else 1}, not {value}")
    if kind is float and isinstance(value, int | float) and not 0.0 < value < 1e9:
        raise InvalidInput(f"{name} must be a positive number of seconds, not {value!r}")


_KINDS: Final = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def read_options(path: Path) -> dict[str, Any]:
    """Return the options that a TOML file sets."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from error
