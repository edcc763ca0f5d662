"""The store in PostgreSQL: which databases it refuses, what is erased, and what is left of lost sessions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import (
    InvalidInput,
    JournalExists,
    JournalLost,
    OneLife,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreInUse,
    StoreMoved,
    StoreTooNew,
)
from tacit.service.store import Behind, Group, Row, Swap
from tests.contracts.stores import append, compact, entries_of
from tests.service.erasure import check_erasure
from tests.service.postgres_server import Server, running

pytest.importorskip("psycopg", reason="PostgreSQL is not tested without psycopg") if "CI" not in os.environ else None

from tacit.service import postgres_session, postgres_store  # noqa: E402
from tacit.service.postgres_store import PostgresStore  # noqa: E402
from tacit.service.postgres_tables import Generation  # noqa: E402

TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tacit' AND datname = '{}'"
SHORT = "SET idle_in_transaction_session_timeout = '100ms'"


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
    append(store, "a", 0, Group([b"1", b"2", b"3"], {"t": {b"k": Row(b"k", 1, b"v")}}))
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
    monkeypatch.setattr(postgres_session, "OLDEST_SERVER", 99)
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
    run("UPDATE meta SET value = '3' WHERE name = 'format'")
    with pytest.raises(StoreTooNew, match="has format 3, and this version of Tacit knows 2"):
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
        ("DROP TABLE log_1_0", "tables of 'a' are missing"),
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
    append(store, "a", 3, Group([b"%d" % (n % 7) for n in range(1000)]))
    run("ANALYZE")
    raw = "tablename ~ '^(log|rows)_' AND attname IN ('entry', 'value', 'key')"
    assert run(f"SELECT * FROM pg_stats WHERE {raw}") == []
    assert run("SELECT attname FROM pg_stats WHERE tablename = 'log_1_0'") == [("seq",)]
    store.close()


# what is left of lost sessions


def before(store: PostgresStore, word: str, call: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store make a call before it sends a statement that begins with this word."""
    run = store._turns.execute

    def watched(statement: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(statement, str) and statement.startswith(word):
            call()
        return run(statement, *arguments, **named)

    monkeypatch.setattr(store._turns, "execute", watched)


def check_untouched(url: str) -> None:
    store = PostgresStore(url)
    tail = store.read("a")
    assert (tail.snapshot, list(tail.entries), tail.journal.note) == (b"first", [b"1", b"2", b"3"], b"")
    assert store.scan("a", "t", 0, 10) == [Row(b"k", 1, b"v")]
    assert append(store, "a", 3, Group([b"4"])) == 4
    store.close()


def test_session_that_is_ended_in_its_turn_leaves_nothing(
    postgres: Server, run: Callable[..., Any], database: str
) -> None:
    store = filled(database)
    group = Group([b"x"], {"t": {b"new": Row(b"new", 9, b"")}}, {"t": 5}, b"note")
    with ThreadPoolExecutor(1) as pool, postgres.connected(database) as other:
        other.execute("SELECT * FROM tacit.heads FOR UPDATE")  # the turn waits for this row
        appending = pool.submit(append, store, "a", 3, group)
        _wait_for(lambda: run("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'") != [])
        run(TERMINATE.format(name_of(database)))
        with pytest.raises(StoreFailed, match="nobody knows how far it came: end this process, check the database"):
            appending.result()
    for call in (lambda: append(store, "a", 3, Group([b"x"])), store.journals, lambda: store.read("a")):
        with pytest.raises(StoreFailed):
            call()
    store.close()
    check_untouched(database)


@pytest.mark.parametrize("word", ["WITH", "COMMIT"])
def test_session_that_is_ended_before_its_commit_leaves_nothing(
    run: Callable[..., Any], database: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(database)
    before(store, word, lambda: run(TERMINATE.format(name_of(database))), monkeypatch)
    with pytest.raises(StoreFailed):
        append(store, "a", 3, Group([b"x"]))
    check_untouched(database)


@pytest.mark.parametrize("word", ["UPDATE", "LOCK", "CREATE", "INSERT", "DROP"])
def test_session_that_is_ended_in_the_middle_of_a_snapshot_leaves_nothing(
    run: Callable[..., Any], database: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(database)
    before(store, word, lambda: run(TERMINATE.format(name_of(database))), monkeypatch)
    with pytest.raises(StoreFailed):
        compact(store, "a", 3, b"x")
    check_untouched(database)


def test_lost_compare_and_set_of_a_snapshot_leaves_the_store_usable(database: str) -> None:
    store = filled(database)
    with pytest.raises(JournalLost), store.turn("a", 3):
        store.compact("a", 2, b"x")
    assert append(store, "a", 3, Group([b"4"])) == 4
    store.close()


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupted_change_is_of_unknown_outcome(
    database: str, interrupt: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def raised() -> None:
        raise interrupt

    store = filled(database)
    before(store, "WITH", raised, monkeypatch)
    with pytest.raises(StoreFailed):
        append(store, "a", 3, Group([b"x"]))
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
            seq = store.read("a").journal.seq
            for number in range(10_000):
                mark = b"%d/%d " % (round_, number)
                rows = {"t": {mark: Row(mark, number, b"")}}
                seq = append(store, "a", seq, Group([mark + b"first", mark + b"second"], rows))
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
    entries = entries_of(store, "a")
    kept = [entry.removesuffix(b"first") for entry in entries[::2]]
    assert entries == [mark + part for mark in kept for part in (b"first", b"second")]
    assert acknowledged <= set(kept)
    assert set(store.find("a", "t", kept)) == set(kept)
    assert len(set(kept)) == len(kept) > 15
    store.close()


# turns of several processes, and what could go wrong in them


@pytest.fixture
def both(database: str) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    """Two processes on a database, in which a journal has three entries and a row."""
    stores = filled(database), PostgresStore(database)
    yield stores
    for store in stores:
        store.close()


def waiting(run: Callable[..., Any]) -> bool:
    return bool(run("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))


def test_a_turn_that_has_waited_reads_the_new_tail(
    both: tuple[PostgresStore, PostgresStore], run: Callable[..., Any]
) -> None:
    """Lock and log in one statement would find the new head and the old log."""
    first, second = both

    def turn() -> tuple[int, list[bytes]]:
        with second.turn("a", 3) as tail:
            return tail.journal.seq, list(tail.entries)

    with ThreadPoolExecutor(1) as pool:
        with first.turn("a", 3):
            later = pool.submit(turn)
            _wait_for(lambda: waiting(run))
            assert first.append("a", 3, Group([b"4"], note=b"note")) == 4
        assert later.result() == (4, [b"4"])


def _turn_while_others_work(store: PostgresStore, work: Callable[[], object]) -> None:
    with store.turn("a", 3):
        work()  # waits until the server has ended this turn
        store.append("a", 3, Group([b"x"]))


def _is_gone(run: Callable[..., Any], store: PostgresStore) -> bool:
    """Whether the server has ended the session that this store has for turns."""
    return not run(f"SELECT 1 FROM pg_stat_activity WHERE pid = {store._turns.info.backend_pid}")


def _timer(store: PostgresStore) -> Any:
    """For how long this store may pause in a turn."""
    ((shown,),) = store._turns.execute("SHOW idle_in_transaction_session_timeout").fetchall()
    return shown


def test_a_session_that_sleeps_with_the_lock_is_ended(both: tuple[PostgresStore, PostgresStore]) -> None:
    """The lock is taken by a message after which the server's timer runs."""
    paused, other = both
    assert _timer(paused) == "2s"
    paused._turns.execute(SHORT)
    other._turns.execute("SET lock_timeout = '2min'")  # fails, where it would wait for ever
    with pytest.raises(StoreFailed):
        _turn_while_others_work(paused, lambda: append(other, "a", 3, Group([b"4"])))
    assert entries_of(other, "a") == [b"1", b"2", b"3", b"4"]


def test_a_turn_that_takes_long_is_not_ended(
    both: tuple[PostgresStore, PostgresStore], run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release of a thousand features takes seconds: the timer would end every process that makes one."""
    working, idle = both
    monkeypatch.setattr(postgres_store, "_ALIVE_EVERY", 0.05)
    with working.turn("a", 3):
        idle._turns.execute("BEGIN")  # pauses from later on, and is ended
        _wait_for(lambda: _is_gone(run, idle))
        working.append("a", 3, Group([b"4"]))
    assert entries_of(working, "a") == [b"1", b"2", b"3", b"4"]


def test_a_turn_that_hangs_is_ended(both: tuple[PostgresStore, PostgresStore], monkeypatch: pytest.MonkeyPatch) -> None:
    hanging, other = both
    monkeypatch.setattr(postgres_store, "_ALIVE_EVERY", 0.05)
    monkeypatch.setattr(postgres_store, "_LONGEST_TURN", 0.0)
    with pytest.raises(StoreFailed):
        _turn_while_others_work(hanging, lambda: append(other, "a", 3, Group([b"4"])))
    assert entries_of(other, "a") == [b"1", b"2", b"3", b"4"]


def test_nothing_waits_for_rewards_whose_table_is_locked(
    postgres: Server, both: tuple[PostgresStore, PostgresStore], database: str
) -> None:
    """A reward waits while a snapshot or a deletion has the table; keys, lists and beats of its process do not."""
    store, other = both
    store.create("b", b"config", b"first")
    swap = [Swap(Row(b"k", 1, b"v"), Row(b"k", 1, b"new"))]
    with ThreadPoolExecutor(2) as pool, other.turn("a", 3):
        other._turns.execute(other._generations["a"].lock_all)
        rewarded = pool.submit(store.swap, "a", "t", swap)
        _wait_for(lambda: _waits_for_lock(postgres, store._swaps.info.backend_pid, database))
        looks = pool.submit(lambda: (len(store.journals()), store.settings("none"), store.scan("b", "t", 0, 10)))
        assert looks.result(120.0) == (2, {}, [])  # the last one is of another policy, for readers and new hosts
        other._roll_back()
        assert rewarded.result() == {b"k"}


def _waits_for_lock(postgres: Server, session: int, database: str) -> bool:
    asked = f"SELECT 1 FROM pg_stat_activity WHERE pid = {session} AND wait_event_type = 'Lock'"
    return bool(postgres.run(asked, database=name_of(database)))


def test_a_snapshot_waits_for_no_dump(postgres: Server, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads the tables for minutes, as pg_dump does, keeps no decision from being made meanwhile."""
    monkeypatch.setattr(postgres_store, "_READERS", "50ms")
    filled(database).close()
    with closing(PostgresStore(database)) as store, postgres.connected(database) as dump:
        ((table,),) = dump.execute("SELECT relname FROM pg_class WHERE relname ~ '^rows_1_[0-9]+$'").fetchall()
        dump.execute(f"LOCK TABLE tacit.{table} IN ACCESS SHARE MODE")
        with store.turn("a", 3):
            assert not store.erasable("a")
            store.append("a", 3, Group([b"4"]))  # the turn goes on
        with store.turn("a", 4):
            assert not store.compact("a", 4, b"snapshot")
        assert entries_of(store, "a") == [b"1", b"2", b"3", b"4"]
        dump.rollback()
        with store.turn("a", 4):
            assert store.erasable("a")
            assert store.compact("a", 4, b"snapshot")
        assert entries_of(store, "a") == []


def test_a_commit_that_is_answered_with_rollback_is_noticed(both: tuple[PostgresStore, PostgresStore]) -> None:
    store = both[0]

    def fail() -> None:
        with store.turn("a", 3), store._in_turn("a"):
            with suppress(Exception):
                store._turns.execute("SELECT 1 / 0")
            store._commit()

    with pytest.raises(StoreFailed, match="rolled back"):
        fail()
    assert entries_of(both[1], "a") == [b"1", b"2", b"3"]


def test_changes_belong_to_turns(both: tuple[PostgresStore, PostgresStore]) -> None:
    store = both[0]
    changes: list[Callable[[], object]] = [
        lambda: store.append("a", 3, Group([b"x"])),
        lambda: store.compact("a", 3, b"x"),
    ]
    for change in changes:
        with pytest.raises(StoreFailed, match="in turns, and this is none"):
            change()
    with store.turn("a", 3):
        store.append("a", 3, Group([b"4"]))
        with pytest.raises(StoreFailed):
            store.append("a", 4, Group([b"5"]))
    assert entries_of(both[1], "a") == [b"1", b"2", b"3", b"4"]


def test_a_process_that_lags_behind_a_snapshot(both: tuple[PostgresStore, PostgresStore]) -> None:
    first, second = both
    second.read("a")
    append(first, "a", 3, Group([b"4"]))
    compact(first, "a", 4, b"snapshot")
    with pytest.raises(Behind), second.turn("a", 3):
        pass
    tail = second.read("a", 3)
    assert (tail.snapshot, list(tail.entries)) == (b"snapshot", [])
    compact(first, "a", 4, b"again")
    with second.turn("a", 4) as known:  # it has read everything: the new tables are all that it notices
        assert (known.snapshot, list(known.entries)) == (None, [])
        assert second.find("a", "t", [b"k"]) == {b"k": Row(b"k", 1, b"v")}
        assert second.append("a", 4, Group([b"5"])) == 5
    assert entries_of(first, "a") == [b"5"]


def test_entries_that_are_erased_while_they_are_read(both: tuple[PostgresStore, PostgresStore]) -> None:
    first, second = both
    append(first, "a", 3, Group([b"x"] * 1500))
    tail = second.read("a", 0)
    assert next(tail.entries) == b"1"
    compact(first, "a", 1503, b"snapshot")
    with pytest.raises(Behind):
        list(tail.entries)


def test_much_is_not_read_under_the_lock(both: tuple[PostgresStore, PostgresStore]) -> None:
    first, second = both
    append(first, "a", 3, Group([b"x"] * 1500))
    with pytest.raises(Behind), second.turn("a", 3):
        pass
    with second.turn("a", 1400) as tail:
        assert len(list(tail.entries)) == 103


def test_rows_that_a_turn_has_read_are_not_swapped_meanwhile(both: tuple[PostgresStore, PostgresStore]) -> None:
    first, second = both
    swap = [Swap(Row(b"k", 1, b"v"), Row(b"k", 1, b"new"))]
    for look in (lambda: first.find("a", "t", [b"k"]), lambda: first.scan("a", "t", 0, 10)):
        with first.turn("a", 3):
            look()
            assert second.swap("a", "t", swap) == set()
    assert second.swap("a", "t", swap) == {b"k"}
    assert first.find("a", "t", [b"k"]) == {b"k": Row(b"k", 1, b"new")}


def test_no_swap_is_lost_by_a_snapshot(both: tuple[PostgresStore, PostgresStore], run: Callable[..., Any]) -> None:
    """It waits for the copy of the rows, and finds the new tables."""
    first, second = both
    copying = first._turns.execute

    def swapped() -> None:
        first._turns.execute = copying  # type: ignore[method-assign]
        futures.append(pool.submit(second.swap, "a", "t", [Swap(Row(b"k", 1, b"v"), Row(b"k", 1, b"new"))]))
        _wait_for(lambda: waiting(run))

    futures: list[Future[set[bytes]]] = []
    with ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as patched:
        before(first, "CREATE", swapped, patched)
        compact(first, "a", 3, b"snapshot")
        assert futures[0].result() == {b"k"}
    assert first.find("a", "t", [b"k"]) == {b"k": Row(b"k", 1, b"new")}


def test_one_of_two_makes_a_journal(both: tuple[PostgresStore, PostgresStore]) -> None:
    def make(store: PostgresStore) -> bool:
        try:
            store.create("b", b"", b"first")
        except JournalExists:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(make, both)) == [False, True]


def test_tables_of_an_earlier_version_are_migrated(postgres: Server, run: Callable[..., Any], database: str) -> None:
    filled(database).close()
    run(
        "ALTER TABLE heads ADD COLUMN epoch bigint NOT NULL DEFAULT 5, DROP COLUMN version",
        "CREATE UNLOGGED TABLE members (id text PRIMARY KEY)",
        "UPDATE meta SET value = '1' WHERE name = 'format'",
    )
    with postgres.connected(database) as earlier:
        earlier.execute("SELECT pg_advisory_lock_shared(x'54616370'::int)")
        with pytest.raises(StoreInUse, match="an earlier version"):
            PostgresStore(database)
    check_untouched(database)


def test_a_process_ends_where_a_later_version_has_written(
    both: tuple[PostgresStore, PostgresStore], run: Callable[..., Any]
) -> None:
    """It could not replay what the other one has logged, or would replay it to another state."""
    first, second = both
    append(first, "a", 3, Group([b"4"]))
    run("UPDATE heads SET version = version + 1")
    for look in (lambda: second.read("a", 3), lambda: append(first, "a", 4, Group([b"5"]))):
        with pytest.raises(StoreTooNew, match="the log of 'a' has format 2"):
            look()
    run("UPDATE heads SET version = version - 1")
    assert append(second, "a", 4, Group([b"5"])) == 5


def test_nothing_is_notified(both: tuple[PostgresStore, PostgresStore], monkeypatch: pytest.MonkeyPatch) -> None:
    """A NOTIFY makes all commits of a database wait for each other."""
    said: list[str] = []
    for connection in (both[0]._turns, both[0]._connection):
        usual = connection.execute

        def execute(query: Any, *given: Any, usual: Any = usual, **named: Any) -> Any:
            said.append(str(query).lower())
            return usual(query, *given, **named)

        monkeypatch.setattr(connection, "execute", execute)
    append(both[0], "a", 3, Group([b"4"]))
    both[0].change_settings({"s": b"t"})
    assert len(said) > 3
    assert not any("notify" in query for query in said)


# who may have it


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


def check_plan(store: PostgresStore, query: str, values: Any, wrong: tuple[str, ...] = ("Removed by",)) -> None:
    plan = "\n".join(row[0] for row in store._rows("EXPLAIN ANALYZE " + query, values))
    assert "Index" in plan
    assert not any(word in plan for word in ("Seq Scan", "Bitmap", *wrong))


def test_lookups_do_not_grow_with_the_table(database: str) -> None:
    store = filled(database)
    keys = [b"%16d" % number for number in range(5000)]
    append(store, "a", 3, Group(rows={"t": {key: Row(key, n, bytes(60)) for n, key in enumerate(keys)}}))
    tables = Generation(1, 0)
    for lock in (False, True):
        check_plan(store, tables.find(lock), (keys[:50], "t"))
        check_plan(store, tables.scan(lock), ("t", 1000, 50))
    check_plan(store, tables.entries, (0,))
    found = [store.find("a", "t", [key])[key] for key in keys[20:60]]
    check_plan(store, *tables.change("a", 3, Group(forget={"t": 10})))
    swaps = [Swap(row, row._replace(value=b"new"), row) for row in found]
    check_plan(store, *tables.swap("t", swaps, "u"), ())  # swaps of a group are compared with each other
    store.close()
