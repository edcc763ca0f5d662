"""The store in PostgreSQL: which databases it refuses, what is erased, and what is left of lost sessions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import (
    InvalidInput,
    JournalLost,
    OneLife,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreInUse,
    StoreMoved,
    StoreTooNew,
)
from tacit.service.store import Group, Row
from tests.contracts.stores import entries_of
from tests.service.erasure import check_erasure
from tests.service.postgres_server import Server, running

pytest.importorskip("psycopg", reason="PostgreSQL is not tested without psycopg") if "CI" not in os.environ else None

from tacit.service import postgres_session  # noqa: E402
from tacit.service.postgres_store import PostgresStore  # noqa: E402
from tacit.service.postgres_tables import Generation  # noqa: E402

TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tacit' AND datname = '{}'"


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """A server whose settings a test may change."""
    with running(f"own-{os.getpid()}") as server:
        yield server


@pytest.fixture
def run(postgres: Server, database: str) -> Callable[..., list[Any]]:
    """Changes the database behind the store's back."""
    return lambda *commands: postgres.run("SET search_path = tacit", *commands, database=name_of(database))


def name_of(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


def filled(url: str) -> PostgresStore:
    store = PostgresStore(url)
    store.create("a", b"config", b"first")
    store.append(store.claim("a").lease, 0, Group([b"1", b"2", b"3"], {"t": {b"k": Row(b"k", 1, b"v")}}))
    return store


# which servers and databases it refuses


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_server_that_may_lose_acknowledged_groups_is_refused(own_server: Server, setting: str) -> None:
    with own_server.database() as url:
        own_server.run(f"ALTER SYSTEM SET {setting} = off", "SELECT pg_reload_conf()")
        try:
            _wait_for(lambda: own_server.run(f"SHOW {setting}") == [("off",)])
            with pytest.raises(StoreError, match=f"has {setting} = off, and a store needs on"):
                PostgresStore(url)
        finally:
            own_server.run(f"ALTER SYSTEM RESET {setting}", "SELECT pg_reload_conf()")
        _wait_for(lambda: own_server.run(f"SHOW {setting}") == [("on",)])
        PostgresStore(url).close()


def _wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("asked", ["off", "local", "remote_write"])
def test_session_waits_for_the_disk_whatever_the_database_says(
    run: Callable[..., Any], database: str, asked: str
) -> None:
    run(f"ALTER DATABASE {name_of(database)} SET synchronous_commit = {asked}")
    store = PostgresStore(database)
    assert store._rows("SHOW synchronous_commit") == [("on",)]
    store.close()


def test_database_that_cannot_hold_all_names_is_refused(postgres: Server) -> None:
    name = f"latin_{os.getpid()}"
    postgres.run(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(StoreError, match="server_encoding = LATIN1"):
            PostgresStore(postgres.url(name))
    finally:
        postgres.run(f"DROP DATABASE {name} WITH (FORCE)")


def test_old_servers_are_refused(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_session, "OLDEST_SERVER", 990_000)
    with pytest.raises(StoreError, match=r"runs PostgreSQL .*: a store needs 99 or newer"):
        PostgresStore(database)


def test_copy_of_a_database_is_refused(postgres: Server, database: str) -> None:
    filled(database).close()
    original, copy = name_of(database), f"{name_of(database)}_copy"
    postgres.run(f"CREATE DATABASE {copy} TEMPLATE {original}")
    try:
        with pytest.raises(StoreMoved, match=r"was made as system .* and is now") as refused:
            PostgresStore(postgres.url(copy))
        assert isinstance(refused.value, OneLife)
        store = PostgresStore(postgres.url(copy), moved_too=True)  # for a backup, which releases nothing
        assert entries_of(store, "a") == [b"1", b"2", b"3"]
        store.close()
    finally:
        postgres.run(f"DROP DATABASE {copy} WITH (FORCE)")
    PostgresStore(database).close()


def test_promoted_copy_is_refused(run: Callable[..., Any], database: str) -> None:
    """A standby that takes over, and a restored backup, go on in a timeline of their own."""
    filled(database).close()
    run("UPDATE meta SET value = regexp_replace(value, 'timeline .*', 'timeline 00000007') WHERE name = 'identity'")
    with pytest.raises(StoreMoved, match=r"timeline 00000007 and is now .* timeline 00000001"):
        PostgresStore(database)


def test_later_versions_and_strangers_are_refused(run: Callable[..., Any], database: str) -> None:
    filled(database).close()
    run("UPDATE meta SET value = '2' WHERE name = 'format'")
    with pytest.raises(StoreTooNew, match="has format 2, and this version of Tacit knows 1"):
        PostgresStore(database)
    run("DELETE FROM meta")
    with pytest.raises(StoreDamaged, match=r"meta .* incomplete"):
        PostgresStore(database)
    run("DROP TABLE meta")
    with pytest.raises(StoreDamaged, match="is no store of Tacit"):
        PostgresStore(database)


def test_words_never_hold_the_password() -> None:
    with pytest.raises(StoreFailed, match=r"the database x on 127\.0\.0\.1:1 cannot be reached") as failed:
        PostgresStore("postgresql://somebody:hunter2@127.0.0.1:1/x")
    assert "hunter2" not in str(failed.value)
    with pytest.raises(InvalidInput, match="must be given as") as refused:
        PostgresStore("postgresql://somebody:hunter2@[/x")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("UPDATE log_1_0 SET entry = set_byte(entry, 8, 99) WHERE seq = 2", "checksum of entry 2"),
        ("DELETE FROM log_1_0 WHERE seq = 2", "entry 2 of 'a' is missing"),
        ("DELETE FROM log_1_0 WHERE seq = 3", r"has entries \(1, 2\)"),
        ("UPDATE journals SET config = 'x'", "checksum of the configuration"),
        ("DELETE FROM log_1_0 WHERE seq = 0", "snapshot of 'a' is missing"),
    ],
)
def test_damage_is_found(run: Callable[..., Any], database: str, damage: str, words: str) -> None:
    filled(database).close()
    run(damage)
    store = PostgresStore(database)
    with pytest.raises(StoreDamaged, match=words):
        entries_of(store, "a")
    store.close()


# what is erased


def test_compaction_leaves_no_byte_of_what_is_gone(postgres: Server, database: str) -> None:
    """In no file of the database; analysed and vacuumed before, as servers do by themselves."""
    name = name_of(database)
    ((number,),) = postgres.run(f"SELECT oid FROM pg_database WHERE datname = '{name}'")

    def content() -> bytes:
        postgres.run("ANALYZE", "VACUUM", "CHECKPOINT", database=name)
        return b"".join(path.read_bytes() for path in sorted((postgres.folder / "base" / str(number)).iterdir()))

    store = PostgresStore(database)
    check_erasure(store, content, groups=150)
    store.close()


def test_statistics_hold_nothing_raw(run: Callable[..., list[Any]], database: str) -> None:
    store = filled(database)
    store.append(store.claim("a").lease, 3, Group([b"%d" % (n % 7) for n in range(1000)]))
    run("ANALYZE")
    raw = "tablename ~ '^(log|rows)_' AND attname IN ('entry', 'value', 'key')"
    assert run(f"SELECT * FROM pg_stats WHERE {raw}") == []
    assert run("SELECT attname FROM pg_stats WHERE tablename = 'log_1_0'") == [("seq",)]
    store.close()


# what is left of lost sessions


def before(store: PostgresStore, word: str, call: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store call somebody before it sends a statement that begins with this word."""
    run = store._connection.execute

    def watched(statement: str, *arguments: Any, **named: Any) -> Any:
        if statement.startswith(word):
            call()
        return run(statement, *arguments, **named)

    monkeypatch.setattr(store._connection, "execute", watched)


def check_untouched(url: str) -> None:
    store = PostgresStore(url)
    recovery = store.claim("a")
    assert (recovery.snapshot, list(recovery.entries), recovery.journal.note) == (b"first", [b"1", b"2", b"3"], b"")
    assert store.scan(recovery.lease, "t", 0, 10) == [Row(b"k", 1, b"v")]
    assert store.append(recovery.lease, 3, Group([b"4"])) == 4
    store.close()


def test_session_that_is_ended_in_the_middle_of_a_group_leaves_nothing(
    postgres: Server, run: Callable[..., Any], database: str
) -> None:
    store = filled(database)
    lease = store.claim("a").lease
    with ThreadPoolExecutor(1) as pool, postgres.connected(database) as other:
        other.execute("SELECT * FROM tacit.heads FOR UPDATE")  # the group waits for this row
        group = Group([b"x"], {"t": {b"new": Row(b"new", 9, b"")}}, {"t": 5}, b"note")
        appending = pool.submit(store.append, lease, 3, group)
        _wait_for(lambda: run("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'") != [])
        run(TERMINATE.format(name_of(database)))
        with pytest.raises(StoreFailed, match="nobody knows how far it came: end this process, check the database"):
            appending.result()
    for _ in range(2):
        with pytest.raises(StoreFailed):
            store.append(lease, 3, Group([b"x"]))
    with pytest.raises(StoreFailed):
        store.journals()
    store.close()
    check_untouched(database)


@pytest.mark.parametrize("word", ["UPDATE", "CREATE", "INSERT", "DROP"])
def test_session_that_is_ended_in_the_middle_of_a_snapshot_leaves_nothing(
    run: Callable[..., Any], database: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(database)
    lease = store.claim("a").lease
    before(store, word, lambda: run(TERMINATE.format(name_of(database))), monkeypatch)
    with pytest.raises(StoreFailed):
        store.compact(lease, 3, b"x")
    check_untouched(database)


def test_owner_that_pauses_in_a_transaction_does_not_stop_others(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(database).close()
    monkeypatch.setitem(postgres_session._SESSION, "idle_in_transaction_session_timeout", "300ms")
    paused, other = PostgresStore(database), PostgresStore(database)
    lease = paused.claim("a").lease
    before(paused, "DROP", lambda: other.claim("a"), monkeypatch)  # waits for what the transaction has changed
    with pytest.raises(StoreFailed):
        paused.compact(lease, 3, b"x")
    other.close()
    check_untouched(database)


def test_lost_compare_and_set_of_a_snapshot_leaves_the_store_usable(database: str) -> None:
    store = filled(database)
    lease = store.claim("a").lease
    with pytest.raises(JournalLost):
        store.compact(lease, 2, b"x")
    assert store.append(lease, 3, Group([b"4"])) == 4
    store.close()


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupted_change_is_of_unknown_outcome(
    database: str, interrupt: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def raised() -> None:
        raise interrupt

    store = filled(database)
    lease = store.claim("a").lease
    before(store, "WITH", raised, monkeypatch)
    with pytest.raises(StoreFailed):
        store.append(lease, 3, Group([b"x"]))
    check_untouched(database)


def test_sessions_that_are_ended_at_any_time_lose_no_acknowledged_group(run: Callable[..., Any], database: str) -> None:
    """Groups of two entries under load, and sessions ended again and again: each group is there whole or not at all."""
    first = PostgresStore(database)
    first.create("a", b"", b"first")
    first.close()
    acknowledged: set[bytes] = set()

    def work(round_: int) -> None:
        with suppress(StoreFailed):
            store = PostgresStore(database)
            recovery = store.claim("a")
            seq = recovery.journal.seq
            for number in range(10_000):
                mark = b"%d/%d " % (round_, number)
                rows = {"t": {mark: Row(mark, number, b"")}}
                seq = store.append(recovery.lease, seq, Group([mark + b"first", mark + b"second"], rows))
                acknowledged.add(mark)

    def has_begun(known: int, working: Future[None]) -> bool:
        return len(acknowledged) > known + 1 or working.done()

    with ThreadPoolExecutor(1) as pool:
        for round_ in range(15):
            _wait_for(partial(has_begun, len(acknowledged), working := pool.submit(work, round_)))
            time.sleep(0.013 * round_)
            run(TERMINATE.format(name_of(database)))
            working.result()
    store = PostgresStore(database)
    recovery = store.claim("a")
    entries = list(recovery.entries)
    kept = [entry.removesuffix(b"first") for entry in entries[::2]]
    assert entries == [mark + part for mark in kept for part in (b"first", b"second")]
    assert acknowledged <= set(kept)
    assert set(store.find(recovery.lease, "t", kept)) == set(kept)
    assert len(set(kept)) == len(kept) > 15
    store.close()


# who may have it


def test_several_may_have_it_open_and_one_succeeds(database: str) -> None:
    first = filled(database)
    old = first.claim("a")
    second = PostgresStore(database)
    new = second.claim("a")
    assert second.append(new.lease, 3, Group([b"4"])) == 4
    second.compact(new.lease, 4, b"snapshot")  # the tables that the first one knows are gone
    for call in (
        lambda: first.append(old.lease, 3, Group([b"x"])),
        lambda: first.compact(old.lease, 3, b"x"),
        lambda: first.find(old.lease, "t", [b"k"]),
        lambda: first.scan(old.lease, "t", 0, 10),
        lambda: list(old.entries),
    ):
        with pytest.raises(JournalLost):
            call()
    recovery = first.claim("a")
    assert (recovery.snapshot, list(recovery.entries)) == (b"snapshot", [])
    for store in (first, second):
        store.close()


def test_several_may_make_it_at_once(database: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        stores = list(pool.map(PostgresStore, [database] * 6))
    for number, store in enumerate(stores):
        store.create(f"{number}", b"", b"first")
        store.close()
    store = PostgresStore(database)
    assert [journal.name for journal in store.journals()] == list("012345")
    store.close()


def test_fork_of_its_process_has_nothing(database: str, tmp_path: Path) -> None:
    store = filled(database)
    child = os.fork()
    if child == 0:
        try:
            with pytest.raises(StoreInUse):
                store.journals()
            store.close()
            (tmp_path / "refused").touch()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "refused").exists()
    assert entries_of(store, "a") == [b"1", b"2", b"3"]
    store.close()


def check_plan(store: PostgresStore, query: str, values: Any) -> None:
    plan = "\n".join(row[0] for row in store._rows("EXPLAIN ANALYZE " + query, values))
    assert "Index" in plan
    assert not any(word in plan for word in ("Seq Scan", "Bitmap", "Removed by"))


def test_lookups_do_not_grow_with_the_table(database: str) -> None:
    store = filled(database)
    lease = store.claim("a").lease
    keys = [b"%16d" % number for number in range(5000)]
    store.append(lease, 3, Group(rows={"t": {key: Row(key, n, bytes(60)) for n, key in enumerate(keys)}}))
    tables = Generation(1, 0)
    for query, values in [
        (tables.find, (keys[:50], "t", lease.epoch)),
        (tables.scan, ("t", 1000, 50, lease.epoch)),
        (tables.entries, (0, lease.epoch)),
    ]:
        check_plan(store, query, values)
    forget = {"name": "a", "epoch": lease.epoch, "seq": 3, "count": 0, "note": None, "table_0": "t", "last_0": 10}
    check_plan(store, tables.change(entries=False, forgotten=1, rows=False), forget)
    store.close()
