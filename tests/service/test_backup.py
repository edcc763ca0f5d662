"""Backups hold nothing of any row, may be started any number of times, and never release a row again."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.errors import CorruptState, InvalidInput, StoreDamaged, UnknownDecision
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.state import flatten, public_part
from tacit.service import backup as backup_module
from tacit.service.backup import back_up_store, read_backup, restore_store
from tacit.service.deployment import Deployment
from tacit.service.durable import DurablePolicy
from tests.contracts.policies import DIM, LOCAL, rounds
from tests.service.hosting import Bench
from tests.service.parts import PRIVATE, STREAMED, arguments, body, quick_store, walk

EPOCHS: dict[str, Any] = {"horizon": None, "first_epoch": 8}
CASES: list[Any] = [(name, {}) for name in PRIVATE]
CASES += [(name, {"factorization": kind} | EPOCHS) for name in STREAMED for kind in ("tree", "toeplitz")]
CASES = [pytest.param(*case, id=f"{case[0]}{case[1] or ''}") for case in CASES]


def begun(folder: Path, name: str, options: dict[str, Any], count: int = 60) -> DurablePolicy:
    policy = DurablePolicy(quick_store(folder), "policy", name, arguments(name, **options))
    walk(policy, count)
    return policy


def inside(policy: DurablePolicy) -> PrivatePolicy:
    found = policy._journal.policy
    assert isinstance(found, PrivatePolicy)
    return found


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_backup_holds_no_bytes_of_rows_or_raw_sums(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    policy = begun(tmp_path / "store", name, options)
    contexts, _ = rounds(12, seed=21)
    for arms in contexts:
        decision = policy.select(arms)
        policy.update(decision, 1.0 / 3.0)
    policy.select(contexts[0])  # one that waits
    policy.backup(tmp_path / "backup")
    data = (tmp_path / "backup").read_bytes()
    state = inside(policy).state
    public = {array.tobytes() for array in public_part(state).values()}
    secret = {path: array for path, array in flatten(state).items() if path not in public_part(state)}
    assert secret
    planted = [row.tobytes() for arms in contexts for row in arms] + [np.float64(1.0 / 3.0).tobytes()]
    planted += [np.ascontiguousarray(line).tobytes() for array in secret.values() for line in np.atleast_2d(array)]
    planted += [memo.tobytes() for memo in inside(policy)._pending.to_arrays()["memos"]]
    found = [value for value in planted if any(value) and len(value) >= 8 and value in data and value not in public]
    assert [value for value in found if len(set(value)) > 3] == []


@pytest.mark.parametrize(("name", "options"), CASES)
def test_every_restored_life_is_a_cohort_of_its_own(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    policy = begun(tmp_path / "store", name, options)
    waiting = policy.select(np.eye(DIM))
    before = inside(policy)
    policy.backup(tmp_path / "backup")
    contexts, rewards = rounds(130, seed=8)
    fingerprints, released = set[str](), set[str]()
    for life in range(3):
        store = quick_store(tmp_path / f"life {life}")
        assert list(restore_store(tmp_path / "backup", store)) == ["policy"]
        again = DurablePolicy(store, "policy", None, {})
        assert np.array_equal(again.estimate, before.estimate)
        assert again.decisions == before.decisions
        assert inside(again)._recovered_at == [before.decisions]
        assert "recovered from a saved file" in str(again.privacy)
        with pytest.raises(UnknownDecision):
            again.update(waiting, 1.0)
        known = {entry.cohort for entry in before.ledger.entries}
        for arms, outcome in zip(contexts, rewards, strict=True):
            decision = again.select(arms)
            again.update(decision, float(outcome[decision.arm]))
        cohorts = {entry.cohort for entry in inside(again).ledger.entries} - known
        assert all(str(cohort).startswith("recovery 1, ") for cohort in cohorts)
        if name not in LOCAL:  # whose reports are charged by themselves
            assert cohorts
        fingerprints.add(inside(again).fingerprint())
        released.add(again.public_fingerprint())
        store.close()
    assert len(fingerprints) == 3
    assert len(released) == 3  # fresh noise in each, also where an estimate follows from older releases
    policy.close()


@pytest.mark.parametrize("name", PRIVATE)
def test_a_restored_life_survives_crashes_and_a_second_backup(name: str, tmp_path: Path) -> None:
    begun(tmp_path / "store", name, {}).backup(tmp_path / "backup")
    store = quick_store(tmp_path / "life")
    restore_store(tmp_path / "backup", store)
    again = DurablePolicy(store, "policy", None, {})
    walk(again, 30, seed=9)
    expected = again.public_fingerprint()
    store.close()
    store = quick_store(tmp_path / "life")
    assert DurablePolicy(store, "policy", None, {}).public_fingerprint() == expected
    back_up_store(store, tmp_path / "second")
    other = quick_store(tmp_path / "third life")
    restore_store(tmp_path / "second", other)
    third = DurablePolicy(other, "policy", None, {})
    assert len(inside(third)._recovered_at) == 2
    third.select(np.eye(DIM))
    store.close()
    other.close()


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    begun(tmp_path / "store", "stream-glm", {}, 10).backup(tmp_path / "backup")
    data = (tmp_path / "backup").read_bytes()
    rng = np.random.default_rng(2)
    for position in [*range(0, 60, 7), *rng.integers(0, len(data), 40).tolist()]:
        damaged = bytearray(data)
        damaged[position] ^= 1 << int(rng.integers(8))
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(CorruptState, match="not a backup of this version, or is damaged"):
            read_backup(tmp_path / "damaged")
    for length in (0, 5, 40, len(data) - 1):
        (tmp_path / "damaged").write_bytes(data[:length])
        with pytest.raises(CorruptState):
            read_backup(tmp_path / "damaged")
    store = quick_store(tmp_path / "target")
    with pytest.raises(CorruptState):
        restore_store(tmp_path / "damaged", store)
    assert store.journals() == []
    store.close()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    policy = begun(tmp_path / "store", "stream-glm", {}, 10)
    policy.backup(tmp_path / "backup")
    data = (tmp_path / "backup").read_bytes()
    with pytest.raises(InvalidInput, match="exists already"):
        policy.backup(tmp_path / "backup")
    assert (tmp_path / "backup").read_bytes() == data
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "store"]
    assert (tmp_path / "backup").stat().st_mode & 0o077 == 0
    store = quick_store(tmp_path / "other")
    restore_store(tmp_path / "backup", store)
    with pytest.raises(InvalidInput, match="this one holds some already"):
        restore_store(tmp_path / "backup", store)
    store.close()


def test_a_policy_without_privacy_has_no_backup(tmp_path: Path) -> None:
    with tacit.open_policy(tmp_path / "store", "greedy-mle", dim=2) as policy:
        with pytest.raises(InvalidInput, match="learns from raw data"):
            policy.backup(tmp_path / "backup")
        assert not (tmp_path / "backup").exists()


def test_users_are_not_counted_anew(tmp_path: Path) -> None:
    """A served policy: its terms and the counters of its users come along, with the key of their hashes."""
    bench = Bench(tmp_path / "store", user_level=True, rounds_per_user=2, reward_wait=10.0, hold=False)
    for number in range(3):
        bench.arm(f"event {number}", user="u")
    bench.arm("event 3", user="v")
    back_up_store(bench.store, tmp_path / "backup")
    store = quick_store(tmp_path / "life")
    restore_store(tmp_path / "backup", store, nothing_released_since=True)
    deployment = Deployment(store)
    served = deployment.get("p")
    assert served.terms == bench.served.terms
    bench.deployment = deployment
    bench._watch(served.host.journal)
    bench.learned.clear()
    for number, user in ((4, "u"), (5, "v"), (6, "v"), (7, "w")):
        bench.arm(f"event {number}", user=user)
        bench.reward(f"event {number}", 1.0)
    bench.arm("event 8", user="x")  # with whom rewards contribute that came before
    assert len(bench.learned) == 2  # the second of v, the first of w
    bench.close()
    store.close()


def test_a_backup_is_on_the_disk_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is synced, and so is its folder after the name was made."""
    policy = begun(tmp_path / "store", "stream-glm", {}, 5)
    synced: list[tuple[bool, bool]] = []
    usual = os.fsync

    def sync(descriptor: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), (tmp_path / "backup").exists()))
        usual(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    policy.backup(tmp_path / "backup")
    assert synced == [(False, False), (True, True)]


def test_an_interrupted_restore_is_not_served_and_a_mode_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two policies of a backup, or before its users are counted, nothing may go on from what is there."""
    deployment = Deployment(quick_store(tmp_path / "store"))
    served, _ = deployment.put("p", body("stream-glm") | {"mode": "apprentice"})
    deployment.put("p", body("stream-glm") | {"mode": "off"})
    changes = served.host.published.modes
    assert [change.mode for change in changes] == ["apprentice", "off"]
    deployment.close()
    store = quick_store(tmp_path / "store")
    back_up_store(store, tmp_path / "backup")
    store.close()

    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(backup_module, "create_journal", interrupted)
        store = quick_store(tmp_path / "cut")
        with pytest.raises(KeyboardInterrupt):
            restore_store(tmp_path / "backup", store)
        store.close()
    with pytest.raises(StoreDamaged, match="restore the backup again"):
        tacit.open_policy(tmp_path / "cut", name="p")
    store = quick_store(tmp_path / "cut")
    with pytest.raises(StoreDamaged, match="interrupted"):
        Deployment(store)
    store.close()
    store = quick_store(tmp_path / "whole")
    restore_store(tmp_path / "backup", store)
    restored = Deployment(store).get("p").host.published
    assert (restored.mode, restored.modes) == ("off", changes)
    store.close()
