"""`tacit keys` on a database: one that is served, one that is not, one that is none."""

from __future__ import annotations

from pathlib import Path

from tests.cli.test_commands import tacit
from tests.cli.test_serving import exercise, listed
from tests.service.http.processes import wait_until
from tests.service.http.running import Running


def test_keys_of_a_database(tmp_path: Path, database: str) -> None:
    running = Running(tmp_path / "data", database=database)
    try:
        key = exercise("--database", database)  # no folder is needed
        with running.client(key) as client:
            assert client.get("/v1/policies").status_code == 200  # at once
            tacit("keys", "revoke", "shop", "--database", database)
            wait_until(lambda: client.get("/v1/policies").status_code == 401)
    finally:
        assert running.stop() == 0
    assert exercise("--database", database)
    assert set(listed("--database", database)) == {"admin", "shop"}


def test_keys_of_a_database_that_is_none(tmp_path: Path, database: str) -> None:
    for command in (("keys", "list", "--database", database), ("backup", database, str(tmp_path / "file"))):
        assert "there is no store in the database" in " ".join(tacit(*command, code=2).output.split())
    gone = tacit("keys", "list", "--database", "postgresql://me:secret@127.0.0.1:1/x", code=2).output
    assert "cannot be reached" in " ".join(gone.split())
    assert "secret" not in gone
