"""A policy that is deleted keeps what is public, and nothing else, for ever; a copy that is adopted goes on so."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import InvalidInput, JournalExists, StoreBusy, StoreFailed, StoreMoved
from tacit.policies import state
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.state import flatten
from tacit.service.backup import adopt_store, back_up, back_up_store, read_backup, restore_store
from tacit.service.deployment import Deployment
from tacit.service.events import EVENTS, INBOX
from tacit.service.host import Answer, Refusal, SetMode
from tacit.service.http.problems import problem_of
from tacit.service.published import Published
from tacit.service.sqlite_store import SQLiteStore
from tacit.service.store import Group, Row
from tacit.service.users import USERS
from tests.service.hosting import Bench, arms_of
from tests.service.parts import body, quick_store
from tests.service.postgres_server import Server

WAIT = 10.0


def lived(folder: Path, **changes: Any) -> Bench:
    """A policy with releases, waiting decisions and rewards that have not contributed."""
    bench = Bench(folder, **({"reward_wait": WAIT} | changes))
    for number in range(30):
        bench.arm(f"event {number}", user=f"user {number % 7}")
        bench.reward(f"event {number}", 1.0)
        bench.wait(1.0)
    return bench


def spent(seen: Published) -> tuple[object, ...]:
    return seen.decisions, seen.releases, seen.estimate, seen.history, seen.spent_mu, seen.privacy["entries"]


@pytest.mark.parametrize("changes", [{}, {"hold": False}, {"user_level": True, "rounds_per_user": 2}])
def test_what_is_public_stays_and_nothing_else(tmp_path: Path, changes: dict[str, object]) -> None:
    bench = lived(tmp_path, **changes)
    before, raw = bench.host.published, flatten(bench.host.journal.policy.state)
    assert before.releases > 10
    assert any(raw[path].any() for path in raw.keys() - state.public_part(bench.host.journal.policy.state).keys())
    for _ in range(2):
        bench.host.delete()
    for _ in range(2):
        seen = bench.host.published
        assert (seen.mode, [change.mode for change in seen.modes]) == ("deleted", ["deleted"])
        assert spent(seen)[:-1] == spent(before)[:-1]
        assert seen.privacy["entries"][: len(before.privacy["entries"])] == before.privacy["entries"]
        assert all(not bench.store.scan("p", table, 0, 10) for table in (EVENTS, INBOX, USERS))
        assert list(bench.store.read("p").entries) == []
        policy = bench.host.journal.policy
        assert isinstance(policy, PrivatePolicy)
        secret = flatten(policy.state).keys() - state.public_part(policy.state).keys()
        assert secret
        assert not any(flatten(policy.state)[path].any() for path in secret)
        assert bench.decide("another", user="x") is Refusal.DELETED
        assert bench.reward("event 29", 1.0) is Refusal.UNKNOWN_EVENT
        assert bench.process(SetMode("online")) == [Refusal.DELETED]
        bench.wait(3 * WAIT)
        assert bench.host.published == seen
        bench.crash()
    bench.close()


def test_a_name_is_not_used_again_and_the_total_keeps_what_was_spent(tmp_path: Path) -> None:
    deployment = Deployment(quick_store(tmp_path))
    deployment.put("p", body("stream-glm"))
    deployment.delete("p")
    for given in (body("stream-glm"), body("stream-glm") | {"mode": "online"}):
        with pytest.raises(JournalExists, match="was deleted, and its name is not used again"):
            deployment.put("p", given)
    with pytest.raises(JournalExists, match="was deleted"):
        deployment.set_mode("p", "off")
    with pytest.raises(InvalidInput, match="mode must be one of online, apprentice, off"):
        deployment.set_mode("p", "deleted")
    assert "p" in deployment.policies
    deployment.close()


@pytest.mark.parametrize("after", [False, True])
def test_a_deletion_that_fails_may_be_repeated(tmp_path: Path, after: bool) -> None:
    bench = lived(tmp_path)
    before = bench.host.published
    bench.store.fail("compact", error=StoreFailed("disk full"), after=after)
    with pytest.raises(StoreFailed):
        bench.host.delete()
    assert bench.host.published is before
    bench.crash()
    assert bench.host.published.mode == ("deleted" if after else "online")
    assert bool(bench.events()) is not after
    bench.host.delete()
    assert bench.events() == []
    bench.close()


def test_a_policy_without_privacy_is_deleted_whole(tmp_path: Path) -> None:
    bench = lived(tmp_path, policy="greedy-mle")
    bench.host.delete()
    assert (bench.host.published.mode, bench.host.published.decisions) == ("deleted", 0)
    bench.crash()
    assert bench.decide("another") is Refusal.DELETED
    bench.close()


def test_another_process_finds_that_a_policy_was_deleted(tmp_path: Path) -> None:
    bench = lived(tmp_path, processes=2)
    bench.switch(1)
    bench.host.delete()
    bench.switch(0)
    assert bench.reward("event 29", 1.0) is Refusal.UNKNOWN_EVENT
    assert bench.decide("another") is Refusal.DELETED
    assert bench.host.published.mode == "deleted"
    for process in range(2):  # what a process has in memory is not written back when it stops
        bench.switch(process)
        policy = bench.host.journal.policy
        secret = flatten(policy.state).keys() - state.public_part(policy.state).keys()
        assert not any(flatten(policy.state)[path].any() for path in secret)
        assert policy._pending.to_arrays()["memos"].size == 0
        bench.host.close()
    bench.crash()
    assert bench.host.journal.policy._pending.to_arrays()["memos"].size == 0
    assert bench.host.published.mode == "deleted"
    bench.close()


def test_a_reward_without_its_event_is_dropped(tmp_path: Path) -> None:
    """It may come while a policy is deleted, and must not stop what follows."""
    bench = lived(tmp_path, hold=False)
    with bench.store.turn("p", bench.host.journal.seq):
        stray = Row(b"stray", 1, bytes(8))
        bench.store.append("p", bench.host.journal.seq, Group(rows={INBOX: {stray.key: stray}}))
    bench.arm("another")
    assert bench.store.find("p", INBOX, [b"stray"]) == {}
    bench.close()


def test_a_backup_has_private_policies_alone(tmp_path: Path) -> None:
    deployment = Deployment(quick_store(tmp_path / "store"))
    deployment.put("private", body("stream-glm"))
    deployment.put("raw", body("greedy-mle"))
    (tmp_path / "live").write_bytes(deployment.backup())
    back_up_store(deployment.store, tmp_path / "stopped")
    for name in ("live", "stopped"):
        assert set(read_backup(tmp_path / name)[0]) == {"private"}
    deployment.close()


def test_a_backup_brings_releases_modes_and_keys_back(tmp_path: Path) -> None:
    bench = lived(tmp_path / "store")
    bench.mode("apprentice")
    bench.store.change_settings({"key-named.shop": b"hashed"})
    seen = bench.host.published
    (tmp_path / "live").write_bytes(bench.deployment.backup(keys=True))
    back_up_store(bench.store, tmp_path / "stopped")
    bench.arm("one more")
    assert read_backup(tmp_path / "stopped")[1] == {}
    for name in ("live", "stopped"):
        store = quick_store(tmp_path / f"restored {name}")
        restore_store(tmp_path / name, store)
        assert bool(store.settings("key")) is (name == "live")
        found = Deployment(store).get("p").host.published
        assert (spent(found)[:-1], found.mode, found.modes) == (spent(seen)[:-1], "apprentice", seen.modes)
        store.close()
    bench.close()


def test_a_backup_whose_counters_were_deleted_meanwhile_is_refused(tmp_path: Path) -> None:
    """Restored without them, people would count anew."""
    bench = lived(tmp_path, user_level=True, rounds_per_user=2)
    copy = bench.host.public_copy()
    bench.host.delete()
    with pytest.raises(InvalidInput, match="was deleted meanwhile: try again"):
        back_up(bench.store, {"p": copy}, keys=False)
    bench.close()


def test_a_backup_of_a_deleted_policy_is_one(tmp_path: Path) -> None:
    bench = lived(tmp_path / "store")
    bench.host.delete()
    back_up_store(bench.store, tmp_path / "backup")
    store = quick_store(tmp_path / "restored")
    restore_store(tmp_path / "backup", store)
    assert Deployment(store).get("p").host.published.mode == "deleted"
    store.close()
    bench.close()


# Copies that are adopted


def _copied(folder: Path) -> Callable[..., SQLiteStore]:
    """A store that was moved, and may be opened on purpose alone."""
    shutil.copytree(folder / "store", folder / "copy")
    with pytest.raises(StoreMoved):
        SQLiteStore(folder / "copy")
    return lambda **given: SQLiteStore(folder / "copy", **given)


def test_a_copy_goes_on_from_what_is_public(tmp_path: Path) -> None:
    bench = lived(tmp_path / "store")
    before = bench.host.published
    bench.close()
    opened = _copied(tmp_path)
    store = opened(moved_too=True)
    assert set(adopt_store(store)) == {"p"}
    store.close()
    store = opened()  # it is the original now
    assert (store.scan("p", EVENTS, 0, 9), list(store.read("p").entries)) == ([], [])
    host = Deployment(store).get("p").host
    assert spent(host.published)[:-1] == spent(before)[:-1]
    assert isinstance(host.journal.policy, PrivatePolicy)
    assert len(host.journal.policy._recovered_at) == 1
    store.close()


def test_a_copy_that_counts_users_states_what_that_costs(tmp_path: Path) -> None:
    bench = lived(tmp_path / "store", user_level=True, rounds_per_user=3)
    bench.close()
    opened = _copied(tmp_path)
    store = opened(moved_too=True)
    with pytest.raises(InvalidInput, match="--accept-user-cost"):
        adopt_store(store)
    with pytest.raises(InvalidInput, match="exclude each other"):
        adopt_store(store, accept_user_cost=True, nothing_released_since=True)
    assert store.scan("p", EVENTS, 0, 9)  # nothing was changed
    adopt_store(store, accept_user_cost=True)
    assert len(store.scan("p", USERS, 0, 9)) == 7
    store.close()
    store = opened()
    assert Deployment(store).get("p").host.published.privacy["lives"] == 2
    store.close()


def test_nothing_is_erased_while_a_dump_reads_it(postgres: Server, database: str) -> None:
    """A deletion that waited for the end of a dump would keep decisions of all policies waiting."""
    from tacit.service.postgres_store import PostgresStore

    deployment = Deployment(PostgresStore(database))
    served, _ = deployment.put("p", body("stream-glm"))
    _, request = served.intake.decision("n", contexts=arms_of(0).tolist(), event_id="event")
    served.host.process([request])
    with postgres.connected(database) as dump:
        ((table,),) = dump.execute("SELECT relname FROM pg_class WHERE relname ~ '^log_1_[0-9]+$'").fetchall()
        dump.execute(f"LOCK TABLE tacit.{table} IN ACCESS SHARE MODE")
        with pytest.raises(StoreBusy, match="try again"):
            deployment.delete("p")
        (answer,) = served.host.process([request])
        assert isinstance(answer, Answer)
        assert not answer.new
        assert served.host.published.mode == "online"
        dump.rollback()
    assert deployment.delete("p").host.published.mode == "deleted"
    problem = problem_of(StoreBusy("read"))
    assert problem is not None
    assert problem.status == 503
    deployment.close()
