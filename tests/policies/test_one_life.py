"""A private state goes on in one place: no copies, no forks, one holder of a saved file."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import stat
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.errors import CannotCopy, CannotMark, CorruptState, StateInUse
from tacit.policies import persistence
from tacit.policies.policy import Policy
from tacit.policies.registry import POLICIES
from tests.contracts.policies import PRIVATE, make, rounds, walk

private_policy = pytest.mark.parametrize("name", PRIVATE)
open_policy = pytest.mark.parametrize("name", [name for name in POLICIES if name not in PRIVATE])
ROOT = Path(__file__).parents[2]


def _played(name: str, count: int = 30) -> Policy:
    policy = make(name)
    walk(policy, *rounds(count))
    return policy


def _script(code: str, *arguments: object) -> subprocess.Popen[str]:
    """A process of its own that runs ``code`` with the arguments, under this test's registry."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _output(process: subprocess.Popen[str]) -> str:
    out, error = process.communicate(timeout=100)
    assert process.returncode == 0, error
    return out


# Copies


@private_policy
def test_private_policies_cannot_be_copied_or_pickled(name: str) -> None:
    policy = _played(name)
    before = policy.fingerprint()
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps, lambda p: copy.deepcopy({"nested": [p]})):
        with pytest.raises(CannotCopy, match="save it and load the file in one place"):
            duplicate(policy)
    assert policy.fingerprint() == before
    policy.select(rounds(1)[0][0])


@open_policy
def test_other_policies_are_copied_into_independent_ones(name: str) -> None:
    contexts, rewards = rounds(40, seed=12)
    policy = _played(name)
    copies = [copy.copy(policy), copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))]
    before = policy.fingerprint()
    expected = None
    for other in copies:
        assert other.fingerprint() == before
        arms = walk(other, contexts, rewards)
        assert expected is None or arms == expected
        expected = arms
        assert policy.fingerprint() == before
    assert walk(policy, contexts, rewards) == expected
    assert policy.fingerprint() == copies[0].fingerprint()


# Forks

FORK = """
    import os, sys, threading, warnings
    warnings.simplefilter("ignore", DeprecationWarning)  # to fork with threads is what is tested
    from tacit.errors import CannotCopy
    from tests.contracts.policies import make, rounds
    contexts, rewards = rounds(3)

    def hold(policy, held, done):
        with policy._life.free():
            held.set()
            done.wait()

    def in_child(policy, waiting, path):
        yield "select", lambda: policy.select(contexts[1])
        yield "select_batch", lambda: policy.select_batch(contexts)
        yield "update", lambda: policy.update(waiting, 1.0)
        yield "play", lambda: policy.play(contexts, rewards)
        yield "save", lambda: policy.save(path)

    def answer(call):
        try:
            call()
            return "went on"
        except CannotCopy as error:
            return "refused" if "fork" in str(error) and "let one of them own the policy" in str(error) else "vague"

    for case in sys.argv[2:]:
        name, lock = case.split(":")
        policy = make(name)
        waiting = policy.select(contexts[0])
        held, done = threading.Event(), threading.Event()
        if lock == "held":
            threading.Thread(target=hold, args=(policy, held, done)).start()
            held.wait()
        child = os.fork()
        if child == 0:
            for what, call in in_child(policy, waiting, os.path.join(sys.argv[1], case)):
                print(case, "child", what, answer(call), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        done.set()
        policy.update(waiting, 1.0)
        policy.select(contexts[1])
        print(case, "parent went on", flush=True)
"""
CALLS = ("select", "select_batch", "update", "play", "save")


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What one process and the children that it forks say; a process of its own, since pytest has threads."""
    if not hasattr(os, "fork"):
        pytest.skip("no forks on this system")
    cases = [*(f"{name}:free" for name in PRIVATE), "stream-glm:held", "random:held"]
    return _output(_script(FORK, tmp_path_factory.mktemp("forks"), *cases)).splitlines()


@pytest.mark.parametrize("case", [*(f"{name}:free" for name in PRIVATE), "stream-glm:held"])
def test_a_forked_child_is_refused_and_the_parent_goes_on(case: str, forks: list[str]) -> None:
    """Also when another thread holds the lock at the fork: the child's copy of it is then never released."""
    said = [line.removeprefix(f"{case} ") for line in forks if line.startswith(f"{case} ")]
    assert said == [*(f"child {call} refused" for call in CALLS), "parent went on"]


def test_a_policy_without_privacy_goes_on_in_a_child_whoever_held_the_lock(forks: list[str]) -> None:
    said = [line.removeprefix("random:held ") for line in forks if line.startswith("random:held ")]
    assert said == [*(f"child {call} went on" for call in CALLS), "parent went on"]


def test_a_child_is_refused_even_if_it_has_the_parents_process_id() -> None:
    """Ids repeat: the first process of every container has number 1."""
    policy = make("stream-glm")
    policy._life.begin_child()
    with pytest.raises(CannotCopy, match="fork"):
        policy.select(rounds(1)[0][0])


# Files


@private_policy
@pytest.mark.parametrize("call", CALLS)
def test_the_first_to_go_on_takes_the_others_right(name: str, call: str, tmp_path: Path) -> None:
    """Every call that learns or draws counts, in both directions."""
    contexts, rewards = rounds(2)
    for first in ("object", "file"):
        policy = make(name)
        waiting = policy.select(contexts[0])
        path = tmp_path / first
        policy.save(path)
        go_on: dict[str, Callable[[], object]] = {
            "select": partial(policy.select, contexts[1]),
            "select_batch": partial(policy.select_batch, contexts),
            "update": partial(policy.update, waiting, 1.0),
            "play": partial(policy.play, contexts, rewards),
            "save": partial(policy.save, tmp_path / "another"),
        }
        if first == "object":
            go_on[call]()
            with pytest.raises(StateInUse, match="recover=True"):
                tacit.load(path)
            continue
        tacit.load(path).update(waiting.id, 1.0)
        before = policy.fingerprint()
        with pytest.raises(StateInUse, match="recover=True"):
            go_on[call]()
        assert policy.fingerprint() == before


@private_policy
def test_bad_input_does_not_take_the_right_of_the_file(name: str, tmp_path: Path) -> None:
    policy = make(name)
    waiting = policy.select(rounds(1)[0][0])
    policy.save(tmp_path / "state")
    for call in (
        lambda: policy.update(waiting, -1.0),
        lambda: policy.update(waiting.id + 1, 1.0),
        lambda: policy.select(np.full((2, 3), 5.0)),
        lambda: policy.play(np.zeros((1, 2, 3)), np.full((1, 2), -1.0)),
    ):
        with pytest.raises(ValueError, match=r"reward|decision|contexts"):
            call()
    tacit.load(tmp_path / "state").update(waiting.id, 1.0)


def _fresh_registry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another machine: it knows of no token."""
    monkeypatch.setenv("TACIT_STATE_DIR", str(folder))
    return folder


def _unwritable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that nobody may write, root included, whom permissions do not stop."""
    real = Path.open

    def refuse(self: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if "+" in mode or "w" in mode or "a" in mode:
            raise PermissionError(30, "Read-only file system", str(self))
        return real(self, mode, *rest, **more)

    monkeypatch.setattr(Path, "open", refuse)


@private_policy
def test_a_file_that_cannot_be_marked_is_refused_and_nothing_changes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = _played(name)
    path = tmp_path / "state"
    policy.save(path)
    before = path.read_bytes()
    for attempt in range(3):
        registry = _fresh_registry(tmp_path / f"registry-{attempt}", monkeypatch)
        with monkeypatch.context() as patch:
            _unwritable(patch)
            with pytest.raises(CannotMark, match="recover=True"):
                tacit.load(path)
        assert path.read_bytes() == before
        assert not list(registry.rglob("*/resumed/*"))
    assert tacit.load(path).fingerprint() == policy.fingerprint()


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write read-only files")
def test_a_read_only_file_is_refused(tmp_path: Path) -> None:
    make("stream-glm").save(tmp_path / "state")
    (tmp_path / "state").chmod(stat.S_IRUSR)
    with pytest.raises(CannotMark, match="cannot be marked"):
        tacit.load(tmp_path / "state")


def test_without_a_registry_the_file_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong setting is no loss: once it is mended, the file is resumed."""
    make("stream-glm").save(tmp_path / "state")
    (tmp_path / "file").write_text("")
    with monkeypatch.context() as patch:
        patch.setenv("TACIT_STATE_DIR", str(tmp_path / "file"))
        with pytest.raises(CannotMark, match="TACIT_STATE_DIR"):
            tacit.load(tmp_path / "state")
    tacit.load(tmp_path / "state")


def test_a_folder_is_no_saved_state(tmp_path: Path) -> None:
    with pytest.raises(CorruptState):
        tacit.load(tmp_path)


@private_policy
def test_the_mark_travels_with_the_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for goes_on in ("file", "object"):
        policy = _played(name)
        path, elsewhere = tmp_path / goes_on, tmp_path / f"{goes_on} elsewhere"
        policy.save(path)
        if goes_on == "file":
            tacit.load(path)
        else:
            policy.select(rounds(1)[0][0])
        shutil.copy(path, elsewhere)
        with monkeypatch.context() as patch:
            _fresh_registry(tmp_path / f"registry {goes_on}", patch)
            with pytest.raises(StateInUse, match="already"):
                tacit.load(elsewhere)


def test_an_object_whose_file_was_resumed_on_another_machine_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share the file, not the registry: the mark is what tells."""
    policy = _played("stream-glm")
    policy.save(tmp_path / "state")
    with monkeypatch.context() as patch:
        _fresh_registry(tmp_path / "another machine", patch)
        tacit.load(tmp_path / "state")
    for _ in range(2):
        with pytest.raises(StateInUse, match="already"):
            policy.select(rounds(1)[0][0])


def test_an_object_whose_file_was_moved_or_replaced_goes_on(tmp_path: Path) -> None:
    policy, other, path = _played("stream-glm"), _played("joint-glm"), tmp_path / "state"
    policy.save(path)
    path.rename(tmp_path / "moved")
    policy.select(rounds(1)[0][0])
    with pytest.raises(StateInUse):
        tacit.load(tmp_path / "moved")
    policy.save(path)
    other.save(path)
    policy.select(rounds(1)[0][0])
    assert tacit.load(path).fingerprint() == other.fingerprint()


@private_policy
def test_marking_damages_nothing(name: str, tmp_path: Path) -> None:
    policy = _played(name)
    policy.save(tmp_path / "state")
    fresh = (tmp_path / "state").read_bytes()
    header, arrays = persistence.read(tmp_path / "state")
    tacit.load(tmp_path / "state")
    marked = (tmp_path / "state").read_bytes()
    assert len(marked) == len(fresh)
    assert marked[:-20] == fresh[:-20]
    with zipfile.ZipFile(tmp_path / "state") as archive:
        assert archive.testzip() is None
        assert archive.comment == b"tacit state: resumed"
    again, same = persistence.read(tmp_path / "state", resumed_too=True)
    assert again == header
    assert all(np.array_equal(same[key], arrays[key]) for key in arrays)


RACE = """
    import os, sys, traceback
    import tacit
    from tacit.errors import StateInUse
    from tests.contracts.policies import make

    def load(path, gate, registry):
        os.environ["TACIT_STATE_DIR"] = registry
        os.read(gate, 1)  # until the parent opens it to all
        try:
            tacit.load(path)
            return 0
        except StateInUse:
            return 1
        except BaseException:
            traceback.print_exc()
            return 2

    for registry in ("shared", "own"):
        for race in range(4):
            path = os.path.join(sys.argv[1], f"{registry}-{race}")
            make("stream-glm").save(path)
            gate, opener = os.pipe()
            children = []
            for number in range(6):
                child = os.fork()
                if child == 0:
                    os.close(opener)
                    os._exit(load(path, gate, f"{path} registry" + (f" {number}" if registry == "own" else "")))
                children.append(child)
            os.close(opener)
            codes = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
            os.close(gate)
            print(registry, *codes)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
def test_of_six_processes_that_load_at_once_one_succeeds(tmp_path: Path) -> None:
    """By the registry when they share it, by the lock on the file when each has its own."""
    races = _output(_script(RACE, tmp_path)).splitlines()
    assert races == ["shared 0 1 1 1 1 1"] * 4 + ["own 0 1 1 1 1 1"] * 4


def test_mark_and_registry_are_on_the_disk_before_a_policy_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    make("stream-glm").save(path)
    synced: list[int] = []

    def fsync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    tacit.load(path)
    registry = persistence._registry()
    assert path.stat().st_ino in synced
    assert registry.stat().st_ino in synced
