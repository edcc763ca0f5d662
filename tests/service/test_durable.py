"""`tacit.open_policy`: whatever ends the process, what was answered is there, and nothing is released a second time."""

from __future__ import annotations

import linecache
import shutil
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.errors import (
    AlreadyRewarded,
    InvalidInput,
    JournalExists,
    JournalLost,
    StoreDamaged,
    StoreFailed,
    StoreInUse,
    UnknownDecision,
    UnknownJournal,
)
from tacit.policies.log import Decided, Released
from tacit.policies.policy import Policy
from tacit.policies.registry import POLICIES
from tacit.service.durable import DurablePolicy
from tacit.service.packing import unpack_entry
from tacit.service.store import Store
from tests.contracts.policies import DIM, LOCAL, rounds
from tests.service.parts import (
    PRIVATE,
    RECORDS,
    SCHEMA,
    SHUFFLED,
    STREAMED,
    USER,
    FaultyStore,
    arguments,
    quick_store,
    same_state,
    walk,
)

NEVER = 10**9


def opened(store: Store, name: str | None = None, *, every: int = NEVER, **changes: Any) -> DurablePolicy:
    """The policy of a store, begun there if it is named."""
    given = {} if name is None else arguments(name, **changes)
    policy = DurablePolicy(store, "policy", name, given)
    policy._journal._every = every
    return policy


def inside(policy: DurablePolicy) -> Policy:
    return policy._journal.policy


def cases() -> list[Any]:
    """Every policy; those with streams by every factorization and with epochs; with rewards that wait for an age."""
    epochs = {"horizon": None, "first_epoch": 8}
    found: list[tuple[str, dict[str, Any], int]] = [(name, {}, every) for name in POLICIES for every in (NEVER, 29)]
    found += [(name, {"horizon": None}, NEVER) for name in PRIVATE if name not in SHUFFLED]
    found += [(name, {"factorization": "tree"} | epochs, NEVER) for name in STREAMED]
    found += [(name, {"factorization": "toeplitz"} | epochs, every) for name in STREAMED for every in (NEVER, 29)]
    found += [(name, {"reward_age": 5}, 29) for name in POLICIES if name not in SHUFFLED]
    found += [(name, {"reward_window": 6}, 29) for name in PRIVATE]
    return [pytest.param(*case, id=f"{case[0]}{case[1] or ''}{case[2] % NEVER or ''}") for case in found]


# Recovery


@pytest.mark.parametrize(("name", "options", "every"), cases())
def test_a_policy_that_was_killed_is_what_it_was(
    name: str, options: dict[str, Any], every: int, tmp_path: Path
) -> None:
    store = quick_store(tmp_path)
    policy = opened(store, name, every=every, **options)
    walk(policy, 70)
    before = inside(policy)
    store.close()  # and nothing else: the object is forgotten
    store = quick_store(tmp_path)
    entries = len(list(store.read("policy").entries))
    assert entries < 29 if every == 29 else entries > 100
    again = opened(store)
    rounding = options.get("factorization") == "toeplitz"  # noise that is worked out from releases
    same_state(before, inside(again), rounding=rounding)
    if not rounding and name not in LOCAL:
        assert before.fingerprint() == inside(again).fingerprint()
    assert again.decisions == before.decisions
    assert str(again.privacy) == str(before.privacy)
    walk(again, 20, seed=4)  # it goes on
    store.close()
    last = inside(opened(quick_store(tmp_path)))
    same_state(inside(again), last, rounding=rounding)


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in PRIVATE])
def test_decisions_after_a_crash_are_those_without_one(name: str, tmp_path: Path) -> None:
    """Where nothing is drawn from the operating system: the same arms as a policy of the same seed, undisturbed."""
    whole = tacit.make_policy(name, **arguments(name, seed=5))
    store = quick_store(tmp_path)
    policy = opened(store, name, seed=5)
    walk(whole, 40), walk(policy, 40)
    store.close()
    policy = opened(quick_store(tmp_path))
    assert [made.arm for made in walk(policy, 40, seed=6)] == [made.arm for made in walk(whole, 40, seed=6)]
    assert inside(policy).fingerprint() == whole.fingerprint()


@pytest.mark.parametrize("name", PRIVATE)
def test_a_committed_release_is_never_drawn_again(name: str, tmp_path: Path) -> None:
    """Several crashes in a row: every life begins with the very releases of the one before."""
    contexts, rewards = rounds(120)
    seen: list[str] = []
    released = 0
    for life in range(6):
        store = quick_store(tmp_path)
        policy = opened(store, name if life == 0 else None, every=57)
        seen.append(policy.public_fingerprint())
        if life:
            assert seen[-2] == seen[-1]
        for t in range(20 * life, 20 * life + 20):
            decision = policy.select(contexts[t])
            policy.update(decision, float(rewards[t, decision.arm]))
        recovery = [unpack_entry(entry) for entry in store.read("policy").entries]
        released += sum(isinstance(entry, Released) for entry in recovery)
        store.close()
        store = quick_store(tmp_path)
        seen.append(opened(store).public_fingerprint())
        store.close()
    assert released > 0


@pytest.mark.parametrize("name", ["stream-glm", "shuffle-glm", "greedy-mle"])
def test_records_by_a_schema_survive(name: str, tmp_path: Path) -> None:
    given = arguments(name, features=SCHEMA) | {"dim": None}
    given.pop("dim")
    store = quick_store(tmp_path)
    policy = DurablePolicy(store, "policy", name, given)
    for _ in range(12):
        policy.update(policy.select(user=USER, arms=RECORDS), 1.0)
    answers = policy.select_batch(users=[USER, {"age": "old"}, USER], arms=RECORDS)
    assert [isinstance(answer, InvalidInput) for answer in answers] == [False, True, False]
    before = inside(policy)
    store.close()
    store = quick_store(tmp_path)
    again = DurablePolicy(store, "policy", name, given)  # the same arguments are no others
    same_state(before, inside(again))
    assert again.config.features == SCHEMA
    with pytest.raises(JournalExists, match="features"):
        DurablePolicy(store, "policy", name, given | {"features": _other_schema()})
    store.close()


def _other_schema() -> Any:
    from tacit.features import Number, Schema

    return Schema(user=[Number("age", 0, 99)], arm=[Number("minutes", 0, 60)])


def test_everything_is_on_the_disk_before_it_is_answered(tmp_path: Path) -> None:
    """After each call another reader of the store finds it there."""
    store = FaultyStore(quick_store(tmp_path))
    policy = opened(store, "stream-glm")
    groups: list[int] = []
    store.after = lambda method: groups.append(1) if method == "append" else None
    decision = policy.select(np.eye(DIM))
    assert len(groups) == 1
    policy.update(decision, 1.0)
    other = policy.select_batch([np.eye(DIM)] * 5)[0]
    assert len(groups) == 3
    assert not isinstance(other, InvalidInput)
    policy.abandon(other)
    assert len(groups) == 4
    store.close()
    again = opened(quick_store(tmp_path))
    with pytest.raises(AlreadyRewarded):
        again.update(decision, 1.0)
    with pytest.raises(AlreadyRewarded):
        again.update(other, 1.0)
    assert again.decisions == 6


# Interruptions


def _calls() -> dict[str, Callable[[DurablePolicy], object]]:
    return {
        "select": lambda policy: policy.select(np.eye(DIM)),
        "select_batch": lambda policy: policy.select_batch([np.eye(DIM)]),
        "update": lambda policy: policy.update(0, 1.0),
        "abandon": lambda policy: policy.abandon(0),
        "explain": lambda policy: policy.explain(),
        "privacy": lambda policy: policy.privacy,
        "estimate": lambda policy: policy.estimate,
        "decisions": lambda policy: policy.decisions,
        "public_fingerprint": lambda policy: policy.public_fingerprint(),
        "backup": lambda policy: policy.backup("/nonexistent/backup"),
    }


def _refuses_everything(policy: DurablePolicy) -> None:
    for call in _calls().values():
        with pytest.raises(StoreFailed, match=r"cannot go on, since .* Open it anew: what was answered is kept"):
            call(policy)


class Struck(Exception):  # noqa: N818 - reads as a statement
    """Stands for a bug, a signal, memory that is used up."""


@pytest.mark.parametrize("error", [Struck, KeyboardInterrupt, MemoryError, tacit.errors.BudgetExceeded])
@pytest.mark.parametrize("where", ["_decide", "_handed_out", "_learn"])
@pytest.mark.parametrize("name", ["stream-glm", "shuffle-linucb", "adaprivate-ts", "local-glm"])
def test_an_interrupted_call_ends_the_policy_and_nothing_answered_is_lost(
    name: str, where: str, error: type[BaseException], tmp_path: Path
) -> None:
    store = quick_store(tmp_path)
    policy = opened(store, name)
    walk(policy, 25)
    decision = policy.select(np.eye(DIM))
    expected, count = inside(policy).fingerprint(), policy.decisions
    usual = getattr(inside(policy), where)

    def strike(*given: Any) -> Any:
        usual(*given)
        raise error("struck")

    setattr(inside(policy), where, strike)
    rewarding = where == "_learn"
    with pytest.raises(error):
        _ = policy.update(decision, 1.0) if rewarding else policy.select(np.eye(DIM))  # type: ignore[func-returns-value]
    _refuses_everything(policy)
    policy.close()
    store = quick_store(tmp_path)
    again = opened(store)
    assert again.decisions == count
    if name not in LOCAL:  # whose noise of the next device is drawn anew, and was never used
        assert inside(again).fingerprint() == expected
    again.update(decision, 1.0)
    store.close()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [StoreFailed("disk full"), KeyboardInterrupt(), JournalLost("another owner")])
def test_a_failing_store_ends_the_policy(error: BaseException, after: bool, tmp_path: Path) -> None:
    """Whether the group was committed or not: it was not answered, and what was is there."""
    store = FaultyStore(quick_store(tmp_path))
    policy = opened(store, "stream-glm")
    made = walk(policy, 25)
    expected = policy.public_fingerprint()
    count = policy.decisions
    store.fail("append", error=error, after=after)
    with pytest.raises(type(error)):
        policy.select(np.eye(DIM))
    _refuses_everything(policy)
    store.close()
    again = opened(quick_store(tmp_path))
    assert again.decisions == count + after
    if not after:
        assert again.public_fingerprint() == expected
    assert len(made) == count


@pytest.mark.parametrize("error", [StoreFailed("disk full"), KeyboardInterrupt()])
def test_a_snapshot_that_fails_ends_the_policy(error: BaseException, tmp_path: Path) -> None:
    store = FaultyStore(quick_store(tmp_path))
    policy = opened(store, "stream-glm", every=20)
    store.fail("compact", error=error)
    with pytest.raises(type(error)):
        walk(policy, 25)
    _refuses_everything(policy)
    before = inside(policy)
    store.close()
    again = opened(quick_store(tmp_path))
    same_state(before, inside(again))  # the group itself was committed


class _Interrupt:
    """Raises KeyboardInterrupt at the line of that number, of the package's own code."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not any(part in frame.f_code.co_filename for part in ("tacit/service", "tacit/policies")):
            return None
        if event == "line" and not _opens(frame):
            self.left -= 1
            if self.left == 0:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self


def _opens(frame: FrameType) -> bool:
    """Whether the line is that of a ``with``: Python passes it again on the way out, where no signal can strike."""
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")


def _interrupted(call: Callable[[], object], at: int) -> str:
    """Where the call was interrupted; nothing if it came to its end."""
    interrupt = _Interrupt(at)
    usual = sys.gettrace()
    sys.settrace(interrupt)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(usual)
    return interrupt.where


@pytest.mark.parametrize("call", ["select", "update"])
def test_a_signal_at_any_line_shows_nothing_that_a_crash_could_take_back(call: str, tmp_path: Path) -> None:
    """Ctrl-C at every line of the package in turn: whoever can still look sees only what the store holds."""
    reached = set[str]()
    for at in range(1, 2000, 3):
        folder = tmp_path / str(at)  # one of its own: a snapshot rewrites all that a store holds
        store = quick_store(folder)
        policy = opened(store, "joint-linucb")
        decision = policy.select(np.eye(DIM))
        select, update = partial(policy.select, np.eye(DIM)), partial(policy.update, decision, 1.0)
        where = _interrupted(select if call == "select" else update, at)
        reached.add(where.rpartition("/")[2].partition(":")[0])
        shown = None
        try:
            shown = (policy.public_fingerprint(), inside(policy).fingerprint())
        except StoreFailed:
            _refuses_everything(policy)
        store.close()
        store = quick_store(folder)
        again = inside(opened(store))
        assert again.decisions in (1, 2)
        assert shown in (None, (again.public_fingerprint(), again.fingerprint())), f"interrupted at {where}"
        store.close()
        shutil.rmtree(folder)
        if not where:
            break
    assert reached >= {"journal.py", "policy.py", "sqlite_store.py", "decision.py"}


def test_another_thread_never_sees_what_is_not_committed(tmp_path: Path) -> None:
    """A call is between memory and disk: estimate, clock, report and explanation wait for the commit."""
    store = FaultyStore(quick_store(tmp_path))
    policy = opened(store, "joint-linucb", horizon=None)
    walk(policy, 10)
    looks: dict[str, Callable[[], object]] = {
        "estimate": lambda: policy.estimate.tobytes(),
        "decisions": lambda: policy.decisions,
        "fingerprint": policy.public_fingerprint,
        "explain": lambda: str(policy.explain()),
        "privacy": lambda: str(policy.privacy),
        "backup": lambda: policy.backup(tmp_path / "backup"),
    }
    before = {name: look() for name, look in looks.items() if name != "backup"}
    seen: dict[str, object] = {}
    threads = [
        threading.Thread(target=lambda n=name, look=look: seen.update({n: look()})) for name, look in looks.items()
    ]

    def meanwhile(method: str) -> None:
        if method == "append" and not threads[0].is_alive() and not seen:
            for thread in threads:
                thread.start()
            threads[0].join(0.3)
            early = dict(seen)
            assert {name: early[name] for name in early if early[name] != before.get(name)} == {}

    store.before = meanwhile
    policy.select(np.eye(DIM))
    for thread in threads:
        thread.join()
    assert seen["decisions"] == policy.decisions
    assert seen["estimate"] == policy.estimate.tobytes()
    store.close()


def test_a_look_that_has_begun_holds_calls_back(tmp_path: Path) -> None:
    """The other order: somebody is looking when a call comes, which must not change what is looked at."""
    store = FaultyStore(quick_store(tmp_path))
    policy = opened(store, "joint-linucb", horizon=None)
    walk(policy, 10)
    applied = threading.Event()
    store.before = lambda method: applied.set() if method == "append" else None
    caller = threading.Thread(target=lambda: policy.select(np.eye(DIM)))
    usual, states = inside(policy).public_fingerprint, list[str]()

    def slowly() -> str:
        caller.start()
        applied.wait(0.3)
        states.append(usual())
        return states[0]

    expected = usual()
    inside(policy).public_fingerprint = slowly  # type: ignore[method-assign]
    assert policy.public_fingerprint() == expected
    caller.join()
    assert applied.is_set()
    assert usual() != expected
    store.close()


# What is refused


@pytest.mark.parametrize("name", ["stream-glm", "greedy-mle", "shuffle-glm"])
def test_bad_input_changes_nothing_and_is_survived(name: str, tmp_path: Path) -> None:
    store = quick_store(tmp_path)
    policy = opened(store, name)
    walk(policy, 15)
    decision = policy.select(np.eye(DIM))
    seq, expected = policy._journal.seq, inside(policy).fingerprint()
    bad: list[Callable[[], object]] = [
        lambda: policy.select(np.ones((2, DIM))),
        lambda: policy.select(np.full((1, DIM), np.nan)),
        lambda: policy.select([[1.0]]),
        lambda: policy.select(user=USER, arms=RECORDS),
        lambda: policy.update(decision, 2.0),
        lambda: policy.update(decision, float("nan")),
        lambda: policy.update(decision, "one"),  # type: ignore[arg-type]
        lambda: policy.update(12345, 1.0),
        lambda: policy.abandon(12345),
        lambda: policy.update(None, 1.0),  # type: ignore[arg-type]
        lambda: policy.select_batch(np.eye(DIM)),
    ]
    for call in bad:
        with pytest.raises(InvalidInput):
            call()
    assert all(isinstance(answer, InvalidInput) for answer in policy.select_batch([[1.0], [2.0]]))
    assert policy._journal.seq == seq
    assert inside(policy).fingerprint() == expected
    policy.update(decision, 1.0)
    with pytest.raises(AlreadyRewarded):
        policy.update(decision, 1.0)
    store.close()


def test_other_arguments_are_refused_by_name(tmp_path: Path) -> None:
    with tacit.open_policy(tmp_path, "stream-glm", dim=2, epsilon=1.0, delta=1e-6):
        pass
    with pytest.raises(JournalExists, match=r"was begun with epsilon=1.0, not 2.0; delta=1e-06, not 1e-07"):
        tacit.open_policy(tmp_path, "stream-glm", dim=2, epsilon=2.0, delta=1e-7)
    with pytest.raises(JournalExists, match="is stream-glm, not joint-glm"):
        tacit.open_policy(tmp_path, "joint-glm", dim=2, epsilon=1.0, delta=1e-6, horizon=10)
    with pytest.raises(JournalExists, match="seed"):
        tacit.open_policy(tmp_path, "stream-glm", dim=2, epsilon=1.0, delta=1e-6, seed=1)
    with pytest.raises(InvalidInput, match="say which policy these arguments are for: dim"):
        tacit.open_policy(tmp_path, dim=2)
    with pytest.raises(InvalidInput, match="epsilonn"):
        tacit.open_policy(tmp_path, "stream-glm", dim=2, epsilonn=1.0, delta=1e-6)
    with tacit.open_policy(tmp_path, "stream-glm", dim=2, epsilon=1, delta=1e-6, theta_bound=1.0) as policy:
        assert policy.decisions == 0


@pytest.mark.parametrize("name", PRIVATE)
def test_noise_that_somebody_knows_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="seed must be left out"):
        tacit.open_policy(tmp_path, name, **arguments(name, seed=1))
    with pytest.raises(InvalidInput, match="noise='fast' is for simulations"):
        tacit.open_policy(tmp_path, name, **arguments(name, noise="fast"))
    with pytest.raises(UnknownJournal):
        tacit.open_policy(tmp_path)  # and nothing was begun


def test_the_profile_that_leaks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="profile='paper' leaks"):
        tacit.open_policy(tmp_path, "joint-glm", **arguments("joint-glm", profile="paper"))


def test_several_policies_of_one_folder(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with tacit.open_policy(tmp_path, "random", name=name, dim=2) as policy:
            for _ in range(3 if name == "a" else 5):
                policy.select(np.eye(2))
    for name, expected in (("a", 3), ("b", 5)):
        with tacit.open_policy(tmp_path, name=name) as policy:
            assert policy.decisions == expected
    with pytest.raises(UnknownJournal, match="no policy named 'policy'; it holds a, b: say which policy to begin"):
        tacit.open_policy(tmp_path)
    for bad in ("", "a/b", "../a", "x" * 65, "-a", ".a", "a b", "ä"):
        with pytest.raises(InvalidInput, match="name must be 1 to 64"):
            tacit.open_policy(tmp_path, "random", name=bad, dim=2)


def test_a_folder_belongs_to_one_opener(tmp_path: Path) -> None:
    with tacit.open_policy(tmp_path, "random", dim=2), pytest.raises(StoreInUse):
        tacit.open_policy(tmp_path)
    with tacit.open_policy(tmp_path):  # a refused call left no lock behind
        pass
    with pytest.raises(InvalidInput):
        tacit.open_policy(tmp_path, "stream-glm", dim=-1, name="other", epsilon=1.0, delta=1e-6)
    with tacit.open_policy(tmp_path):
        pass


def test_damage_to_the_log_is_told_and_nothing_is_answered(tmp_path: Path) -> None:
    """An entry that cannot be applied is a damaged store, and never a policy that goes on from the middle."""
    for number, damage in enumerate([b"XYZ", b"W" + bytes(16), b"D" + bytes(60)]):
        store = quick_store(tmp_path / str(number))
        policy = opened(store, "stream-glm")
        walk(policy, 5)
        policy._journal.group.entries.append(damage)
        policy._journal.commit()
        store.close()
        store = quick_store(tmp_path / str(number))
        with pytest.raises(StoreDamaged, match="the journal of 'policy' cannot be applied"):
            opened(store)
        store.close()


# The end


def _files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize("name", [*STREAMED, "adaprivate-ts", "local-glm", "shuffle-glm"])
def test_close_erases_the_rows(name: str, tmp_path: Path) -> None:
    """The memos of all decisions are in the files while the log is needed, and nowhere after a snapshot."""
    store = quick_store(tmp_path)
    policy = opened(store, name, horizon=40_000)
    contexts, _ = rounds(30)
    memos = list[bytes]()
    for arms in contexts:
        decision = policy.select(arms)
        memos.append(inside(policy)._pending.memo(decision.id)[:DIM].tobytes())
        policy.update(decision, 1.0)
    assert sum(memo in _files(tmp_path) for memo in memos) == 30
    policy.close()
    kept = 30 if name in ("joint-glm", "shuffle-glm") else 0  # whose state keeps rows until they are released
    assert sum(memo in _files(tmp_path) for memo in memos) == kept
    with tacit.open_policy(tmp_path) as again:
        assert again.decisions == 30


def test_after_a_close_nothing_works(tmp_path: Path) -> None:
    policy = tacit.open_policy(tmp_path, "stream-glm", dim=DIM, epsilon=1.0, delta=1e-6)
    decision = policy.select(np.eye(DIM))
    held = inside(policy)
    policy.close()
    for call in _calls().values():
        with pytest.raises(StoreFailed, match="it was closed"):
            call(policy)
    with pytest.raises(StoreFailed, match="it was closed"):
        held.select(np.eye(DIM))  # whoever kept the policy itself cannot go on with it either
    policy.close()
    with tacit.open_policy(tmp_path) as again:
        again.update(decision, 1.0)
        with pytest.raises(UnknownDecision):
            again.update(decision.id + 1, 1.0)


def test_many_threads_lose_nothing(tmp_path: Path) -> None:
    store = quick_store(tmp_path)
    policy = opened(store, "greedy-mle", every=50)
    errors = list[BaseException]()
    made = list[int]()

    def work(seed: int) -> None:
        try:
            contexts, _ = rounds(40, seed)
            for arms in contexts:
                decision = policy.select(arms)
                made.append(decision.id)
                policy.update(decision, 1.0)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(set(made)) == 160
    before = inside(policy)
    store.close()
    again = opened(quick_store(tmp_path))
    assert again.decisions == 160
    assert inside(again).fingerprint() == before.fingerprint()


def test_a_policy_without_privacy_shows_no_estimate(tmp_path: Path) -> None:
    """Its estimate is raw data, and it has none under this name: words, not an AttributeError."""
    with (
        tacit.open_policy(tmp_path, "greedy-mle", dim=DIM) as policy,
        pytest.raises(InvalidInput, match="learns from raw data"),
    ):
        policy.estimate  # noqa: B018


def test_the_log_holds_the_chosen_arm_alone(tmp_path: Path) -> None:
    store = quick_store(tmp_path)
    policy = opened(store, "stream-glm")
    contexts, _ = rounds(20)
    arms = [policy.select(user).arm for user in contexts]
    store.close()
    store = quick_store(tmp_path)
    log = [unpack_entry(entry) for entry in store.read("policy").entries]
    decided = [entry for entry in log if isinstance(entry, Decided)]
    assert [entry.arms for entry in decided] == [[arm] for arm in arms]
    files = _files(tmp_path)
    for user, arm in zip(contexts, arms, strict=True):
        for k, row in enumerate(user):
            assert (row.tobytes() in files) == (k == arm)
    store.close()
