"""Processes on one database find each other by locks and beats: who lives, who owns what, who is gone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tacit.errors import StoreFailed, StoreInUse
from tests.service.postgres_server import Server
from tests.service.test_postgres_store import name_of

pytest.importorskip("psycopg", reason="PostgreSQL is not tested without psycopg") if "CI" not in os.environ else None

from tacit.service import cluster, cluster_tables, postgres_session  # noqa: E402
from tacit.service.cluster import Cluster, Read, alone  # noqa: E402
from tacit.service.postgres_store import PostgresStore  # noqa: E402
from tacit.service.sharing import View  # noqa: E402


class Player:
    """A member that does at once what it is told."""

    def __init__(self, url: str, name: str) -> None:
        self.cluster = Cluster(url, f"http://{name}:1")
        self.owns: set[str] = set()
        self.settings: dict[str, bytes] = {}
        self.error: BaseException | None = None
        self.cluster.start(self)

    def take(self, name: str) -> None:
        self.owns.add(name)

    def give(self, name: str) -> None:
        self.owns.remove(name)
        self.cluster.let_go(name)

    def looked(self, view: View, read: Read) -> None:
        self.settings = dict(read("key."))

    def fail(self, error: BaseException) -> None:
        self.error = error


@contextmanager
def players(url: str, *names: str) -> Iterator[list[Player]]:
    found = [Player(url, name) for name in names]
    try:
        yield found
    finally:
        for player in found:
            player.cluster.leave()


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def store(database: str) -> Iterator[PostgresStore]:
    """A store with four journals."""
    found = PostgresStore(database)
    for name in "abcd":
        found.create(name, b"config", b"first")
    yield found
    found.close()


def test_everything_is_owned_once_and_moves_to_who_joins(database: str, store: PostgresStore) -> None:
    with players(database, "one") as found:
        (one,) = found
        wait_for(lambda: one.owns == set("abcd"))
        found += [Player(database, "two")]
        two = found[1]
        wait_for(lambda: len(two.owns) == 2)  # after a lease
        assert one.owns | two.owns == set("abcd")
        assert not one.owns & two.owns
        wait_for(lambda: one.cluster.view.whole and one.cluster.view == two.cluster.view)
        assert {member.address for member in one.cluster.view.members} == {"http://one:1", "http://two:1"}
        two.cluster.resign().result(120.0)
        for name in list(two.owns):
            two.give(name)
        wait_for(lambda: one.owns == set("abcd"))
        assert one.error is two.error is None


def test_who_loses_its_session_is_replaced_and_must_end(postgres: Server, database: str, store: PostgresStore) -> None:
    with players(database, "one", "two") as (one, two):
        wait_for(lambda: len(one.owns) == len(two.owns) == 2)
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{}'"
        postgres.run(ended.format(one.cluster.application))
        wait_for(lambda: two.owns == set("abcd"))
        wait_for(lambda: one.error is not None)
        assert isinstance(one.error, StoreFailed)
        wait_for(lambda: len(two.cluster.view.members) == 1)
        rows = postgres.run("SELECT id FROM tacit.members", database=name_of(database))
        assert rows == [(two.cluster.id,)]


def test_new_policies_settings_and_locks_are_known_at_once(
    database: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "BEAT", 10_000.0)  # what is known at all was told
    monkeypatch.setattr(cluster_tables, "LEASE", 20_000.0)
    with players(database, "one", "two") as (one, two):
        wait_for(lambda: one.cluster.view.whole and two.cluster.view.whole)
        assert one.cluster.reserve("new").result(120.0)
        assert not one.cluster.reserve("new").result(120.0)  # it has it already
        assert not two.cluster.reserve("new").result(120.0)
        store.create("new", b"config", b"first")
        store.change_settings({"key.k": b"v", "other": b""})
        one.cluster.tell().result(120.0)
        wait_for(lambda: two.settings == {"key.k": b"v"})
        assert two.cluster.fresh().result(120.0).owners["new"] == one.cluster.id
        assert "new" not in two.owns
        one.cluster.let_go("new").result(120.0)
        wait_for(lambda: "new" in one.owns | two.owns)


def test_one_alone_and_those_who_serve_exclude_each_other(
    database: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with players(database, "one", "two") as found:
        for player in found:
            with pytest.raises(StoreInUse, match="a process serves the database"), alone(database):
                pytest.fail("it is being served")
            player.cluster.leave()
        found.clear()
        monkeypatch.setitem(postgres_session._SESSION, "lock_timeout", "100ms")
        with alone(database), pytest.raises(StoreInUse, match="start again when that is over"):
            Cluster(database, "http://three:1")
        Cluster(database, "http://three:1").leave()
