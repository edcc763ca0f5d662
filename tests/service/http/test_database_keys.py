"""`tacit keys` on a database: one that is served, one that is not, one that is none."""

from __future__ import annotations

from pathlib import Path

from tacit.service.cluster import alone
from tacit.service.postgres_store import PostgresStore
from tests.cli.test_commands import tacit
from tests.cli.test_serving import exercise, listed
from tests.service.http.running import Running


def test_keys_of_a_database(tmp_path: Path, database: str) -> None:
    folder = str(tmp_path / "owner")
    asked = ("--database", database, "--data", folder)
    running = Running(tmp_path / "owner", database=database)
    try:
        key = exercise(*asked)  # found by the database: the service is asked, which knows the key at once
        with running.client(key) as client:
            assert client.get("/v1/policies").status_code == 200
        lost = " ".join(tacit("keys", "list", "--database", database, "--data", str(tmp_path), code=2).output.split())
        assert "admin.key is missing" in lost
        assert "--data" in lost
        tacit("keys", "revoke", "shop", *asked)
    finally:
        assert running.stop() == 0
    assert exercise("--database", database)  # nobody serves it: no folder is needed
    assert set(listed("--database", database)) == {"admin", "shop"}


def test_keys_of_a_database_that_is_none_or_is_kept(tmp_path: Path, database: str) -> None:
    for command in (("keys", "list", "--database", database), ("backup", database, str(tmp_path / "file"))):
        assert "there is no store in the database" in " ".join(tacit(*command, code=2).output.split())
    store = PostgresStore(database)
    with alone(database):
        kept = " ".join(tacit("keys", "add", "shop", "--database", database, code=2).output.split())
    assert "a process serves the database" in kept
    assert "nor is there a service that answers" in kept
    assert store.settings("key.") == {}
    store.close()
    gone = tacit("keys", "list", "--database", "postgresql://me:secret@127.0.0.1:1/x", code=2).output
    assert "cannot be reached" in " ".join(gone.split())
    assert "secret" not in gone
