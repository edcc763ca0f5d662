"""Every store keeps the contract of ``tacit.service.store``."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tacit.service.sqlite_store import SQLiteStore
from tacit.service.store import Store
from tests.contracts.stores import CHECKS, OpenStore, StoreMachine
from tests.service.postgres_server import Server


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    if request.param == "sqlite":
        return lambda: SQLiteStore(tmp_path / "store")
    url = request.getfixturevalue("database")
    from tacit.service.postgres_store import PostgresStore

    return lambda: PostgresStore(url)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(check: object, open_store: OpenStore) -> None:
    assert callable(check)
    check(open_store)


class SQLiteMachine(StoreMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())

    def open_store(self) -> Store:
        return SQLiteStore(self.folder / "store", synchronous="OFF")  # what is compared does not depend on it

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


class PostgresMachine(StoreMachine):
    server: ClassVar[Server]
    url: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.server.clear(self.url)

    def open_store(self) -> Store:
        from tacit.service.postgres_store import PostgresStore

        return PostgresStore(self.url)


TestSQLiteAgainstPython = SQLiteMachine.TestCase
TestSQLiteAgainstPython.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def test_postgres_against_python(postgres: Server, database: str) -> None:
    class Machine(PostgresMachine):
        server, url = postgres, database

    run_state_machine_as_test(Machine, settings=settings(TestSQLiteAgainstPython.settings, max_examples=20))
