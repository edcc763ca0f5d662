"""A policy's life in a store: groups, snapshots, and the death of a journal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tacit.errors import InvalidInput, JournalExists, JournalLost, StoreDamaged, StoreFailed, TacitError
from tacit.policies.policy import Policy
from tacit.policies.registry import make_policy
from tacit.policies.state import Snapshot
from tacit.service import journal as journal_module
from tacit.service.journal import PolicyJournal, create_journal, described
from tacit.service.packing import pack_snapshot, unpack_entry, unpack_snapshot
from tests.contracts.policies import DIM
from tests.service.parts import FaultyStore, arguments, quick_store, same_state


def begun(store: FaultyStore, every: int = 10**9) -> PolicyJournal:
    return PolicyJournal.begin(store, "a", "joint-linucb", arguments("joint-linucb"), snapshot_every=every)


def _work(journal: PolicyJournal, work: Callable[[Policy], None]) -> None:
    with journal.working() as policy:
        work(policy)


@pytest.fixture
def store(tmp_path: Path) -> FaultyStore:
    return FaultyStore(quick_store(tmp_path))


def test_a_group_is_one_commit(store: FaultyStore) -> None:
    journal = begun(store)
    appends: list[str] = []
    store.before = lambda method: appends.append(method) if method == "append" else None
    with journal.working() as policy:
        for _ in range(5):
            policy.update(policy.select(np.eye(DIM)), 1.0)
        assert journal.seq == 0
        journal.commit()
    assert appends == ["append"]
    assert journal.seq == len(list(store.read("a").entries))
    assert journal.released_in_group == 0


def test_nothing_to_commit_is_no_commit(store: FaultyStore) -> None:
    journal = begun(store)
    store.fail("append", error=AssertionError("there was nothing"))
    journal.commit()
    assert journal.alive


def test_releases_of_a_group_are_counted(store: FaultyStore) -> None:
    journal = begun(store)
    with journal.working() as policy:
        for _ in range(6):
            policy.update(policy.select(np.eye(DIM)), 1.0)
    kinds = [type(unpack_entry(entry)).__name__ for entry in journal.group.entries]
    assert journal.released_in_group == kinds.count("Released") > 0


def test_a_snapshot_takes_the_place_of_the_log(store: FaultyStore) -> None:
    journal = begun(store, every=10)
    lengths = []
    for _ in range(30):
        with journal.working() as policy:
            policy.update(policy.select(np.eye(DIM)), 1.0)
            journal.commit()
        assert journal.upkeep_due == (journal.seq - journal.snapshot_seq >= 10)
        journal.tend()
        lengths.append(journal.seq - journal.snapshot_seq)
    assert max(lengths) < 10
    assert journal.seq > 60
    assert store.read("a").journal.seq == journal.seq
    same_state(journal.policy, PolicyJournal(store, "a").policy)


def test_a_snapshot_that_was_given_up_is_tried_later(store: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, tried = begun(store, every=20), list[int]()

    def give_up(*given: object) -> bool:
        tried.append(journal.seq)
        return False

    monkeypatch.setattr(FaultyStore, "compact", give_up)
    while len(tried) < 3:
        with journal.working() as policy:
            policy.select(np.eye(DIM))
            journal.commit()
        journal.tend()
    assert np.diff(tried).min() >= 2  # not with every group
    monkeypatch.undo()
    journal.compact()
    assert journal.snapshot_seq == journal.seq
    same_state(journal.policy, PolicyJournal(store, "a").policy)


def test_a_snapshot_holds_what_is_committed(store: FaultyStore) -> None:
    journal = begun(store)
    with journal.working() as policy:
        policy.select(np.eye(DIM))
    with pytest.raises(TacitError, match="commit first"):
        journal.compact()
    journal.commit()
    journal.compact()


def test_ids_of_decisions_are_known_before_the_first(store: FaultyStore) -> None:
    """They begin at random: without them in the store a crash before the second snapshot could not be replayed."""
    create_journal(store, "a", make_policy("joint-linucb", **arguments("joint-linucb")))
    first = PolicyJournal(store, "a")  # as after a crash between the two
    with first.working() as policy:
        decision = policy.select(np.eye(DIM))
        first.commit()
    with PolicyJournal(store, "a").working() as policy:
        policy.update(decision, 1.0)


def test_what_another_process_appended_outside_of_a_turn_ends_it(store: FaultyStore) -> None:
    journal = begun(store)
    other = PolicyJournal(store, "a")
    with other.working() as policy:
        policy.select(np.eye(DIM))
        other.commit()
    journal.policy.select(np.eye(DIM))
    with pytest.raises(JournalLost):
        journal.commit()
    assert not journal.alive
    with pytest.raises(StoreFailed, match="cannot go on"):
        journal.commit()
    with pytest.raises(StoreFailed, match="cannot go on"):
        journal.compact()
    assert not journal.group


def test_bad_input_in_the_middle_of_a_group_ends_it(store: FaultyStore) -> None:
    """Alone it is survived; after something was done it is not known whether that is to be kept."""
    journal = begun(store)
    with pytest.raises(InvalidInput):
        _work(journal, lambda policy: policy.update(3, 1.0))
    assert journal.alive
    with pytest.raises(InvalidInput):
        _work(journal, lambda policy: policy.update(policy.select(np.eye(DIM)).id + 1, 1.0))
    assert not journal.alive


def test_rows_that_were_put_count_as_work(store: FaultyStore) -> None:
    journal = begun(store)

    def work(policy: Policy) -> None:
        journal.group.forget["events"] = 3
        policy.update(3, 1.0)

    with pytest.raises(InvalidInput):
        _work(journal, work)
    assert not journal.alive


def test_names_and_configurations(store: FaultyStore) -> None:
    begun(store)
    with pytest.raises(JournalExists):
        begun(store)
    name, config, _ = described(store.journals()[0].config)
    assert (name, config["dim"]) == ("joint-linucb", DIM)
    for bad in (b"", b"{}", b"[]", b'{"policy": "x"}', b"\xff"):
        with pytest.raises(StoreDamaged, match="configuration that cannot be read"):
            described(bad)


def test_a_policy_that_nobody_knows_is_told(store: FaultyStore) -> None:
    begun(store)
    snapshot = unpack_snapshot(store.read("a").snapshot or b"")
    unknown = Snapshot(snapshot.header | {"policy": "nobody's"}, snapshot.arrays)
    store.create("b", b"{}", pack_snapshot(unknown))
    with pytest.raises(StoreDamaged, match="nobody's"):
        PolicyJournal(store, "b")


def test_an_adopted_policy_keeps_what_it_learned(store: FaultyStore) -> None:
    policy = make_policy("greedy-mle", **arguments("greedy-mle"))
    decision = policy.select(np.eye(DIM))
    create_journal(store, "mine", policy)
    again = PolicyJournal(store, "mine")
    with again.working() as found:
        found.update(decision, 1.0)
        again.commit()
    assert again.policy.decisions == 1


def test_a_snapshot_waits_until_it_is_worth_what_it_carries_along(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "LONGEST_LOG", 60)
    journal = begun(store, every=10)
    for carried, expected in ((5, 10), (30, 30), (1_000, 60)):
        journal.carried = carried
        while not journal.upkeep_due:
            with journal.working() as policy:
                policy.abandon(policy.select(np.eye(DIM)))
                journal.commit()
        assert expected <= journal.seq - journal.snapshot_seq <= expected + 3
        journal.tend()
        assert journal.seq == journal.snapshot_seq
