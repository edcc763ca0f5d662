"""Checks of a policy's one life: files, copies, threads, recovery, and errors that say nothing of other users."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from tacit.audit.replay import load_private, own_registry
from tacit.errors import InvalidInput, OneLife, RecoveryWarning
from tacit.policies.decision import Decision
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.state import flatten, public_part
from tacit.typing import FloatArray
from tests.mutants.checks.noise import small_policy, walk

_PRIVATE: Final = ("stream-glm", "joint-glm", "joint-linucb", "shuffle-glm", "shuffle-linucb", "local-glm")


def resumed_once() -> list[str]:
    """Of a state, its files and their copies, one goes on."""
    with own_registry(), tempfile.TemporaryDirectory() as folder:
        policy = small_policy(None)
        walk(policy, 3)
        paths = [Path(folder) / name for name in ("earlier", "first", "copy")]
        policy.save(paths[0])
        policy.save(paths[1])
        shutil.copy(paths[1], paths[2])
        loads = [partial(load_private, path) for path in paths]
        going = _going([partial(_itself, policy), *loads], lambda one: one.select(np.eye(2)))
    return [f"{going} copies of one state went on, each with noise of its own"] if going != 1 else []


def _going(makers: list[Callable[[], PrivatePolicy]], use: Callable[[PrivatePolicy], Any]) -> int:
    """How many of these policies can be had and used."""
    alive, going = [], 0
    for make in makers:
        try:
            alive.append(make())
        except OneLife:
            continue
    for one in alive:
        try:
            use(one)
            going += 1
        except OneLife:
            continue
    return going


def rewards_go_on() -> list[str]:
    """A reward after a save counts as going on: file and object cannot both take in the same decision's."""
    found = []
    for name in ("stream-glm", "local-glm"):
        with own_registry(), tempfile.TemporaryDirectory() as folder:
            policy, path = small_policy(3, name), Path(folder) / "state"
            decision = policy.select(np.eye(2))
            policy.save(path)
            report = partial(_rewarded, decision=decision)
            going = _going([partial(_itself, policy)], report)
            going += _going([partial(load_private, path)], report)
        if going != 1:
            found.append(f"{name}: the reward of one decision was taken in by object and file")
    return found


def _rewarded(policy: PrivatePolicy, decision: Decision) -> None:
    policy.update(decision, 1.0)


def unmarkable_files() -> list[str]:
    """A file that cannot be marked is not resumed, on a machine that has never seen it."""
    going = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        with own_registry():
            small_policy(None).save(path)
        with _sealed(path) as read_only:
            for _ in range(3):
                with own_registry():
                    going += _going([partial(load_private, read_only)], _itself)
    return [f"a read-only file was resumed {going} times"] if going else []


@contextmanager
def _sealed(path: Path) -> Iterator[Path]:
    """A read-only file of the same content, where the system has such (root writes to all others)."""
    if not hasattr(os, "memfd_create"):
        path.chmod(0o400)
        yield path
        return
    import fcntl

    descriptor = os.memfd_create("state", os.MFD_ALLOW_SEALING)
    try:
        os.write(descriptor, path.read_bytes())
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def copies_refused() -> list[str]:
    """Copies of a private policy are refused."""
    found = []
    for name in _PRIVATE:
        policy = small_policy(3, name)
        for how, attempt in (("copy", copy.copy), ("deepcopy", copy.deepcopy), ("pickle", _pickled)):
            if _going([partial(attempt, policy)], _itself):
                found.append(f"{name}: {how} gives a second policy that goes on")
    return found


def one_call_at_a_time() -> list[str]:
    """Of two threads that decide, or report rewards, the first is held up in the middle: the second must wait."""
    found = []
    for first in ("select", "select_batch", "update"):
        for second in ("select", "select_batch", "update"):
            if _both_inside(first, second):
                found.append(f"{first} and {second} change the state at the same time")
    return found


def _both_inside(*calls: str) -> bool:
    policy = small_policy()
    decisions = iter([policy.select(np.eye(2)) for _ in range(2)])
    entered, may_leave = threading.Semaphore(0), threading.Event()

    def held_up(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            entered.release()
            may_leave.wait(5.0)
            return original(*arguments)

        return call

    policy._learn = held_up(policy._learn)  # type: ignore[method-assign]
    policy._decide = held_up(policy._decide)  # type: ignore[method-assign]
    targets: dict[str, Callable[[], Any]] = {
        "select": lambda: policy.select(np.eye(2)),
        "select_batch": lambda: policy.select_batch(np.eye(2)[None]),
        "update": lambda: policy.update(next(decisions), 1.0),
    }
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(targets[calls[0]])
        entered.acquire(timeout=5.0)
        second = pool.submit(targets[calls[1]])
        both = entered.acquire(timeout=0.5)
        may_leave.set()
    if not both:  # two at once may also fail: a stream refuses a leaf whose noise the other call has used up
        first.result()
        second.result()
    return both


def _itself(policy: PrivatePolicy) -> PrivatePolicy:
    return policy


def _pickled(policy: PrivatePolicy) -> PrivatePolicy:
    found: PrivatePolicy = pickle.loads(pickle.dumps(policy))
    return found


def recovery() -> list[str]:
    """A recovered policy holds nothing of earlier rows, and draws noise that no other life has drawn."""
    found = []
    for name in _PRIVATE:
        with own_registry(), tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", RecoveryWarning)
            policy, path = small_policy(3, name), Path(folder) / "state"
            walk(policy, 19)
            waiting = policy.select(np.eye(2))
            walk(policy, 1)  # leaves a row in the open leaf
            policy.save(path)
            lives = [load_private(path, recover=True) for _ in range(2)]
            found += [f"{name}: {text}" for text in _leftovers(lives[0], waiting)]
            drawn = [_next_draws(one) for one in (policy, *lives)]
            if np.unique(np.concatenate(drawn)).size < sum(values.size for values in drawn):
                found.append(f"{name}: two lives of one state draw the same noise for different rows")
    return found


def _next_draws(policy: PrivatePolicy) -> FloatArray:
    """Of all three sources."""
    sources = policy.randomness
    return np.concatenate([sources.ticks.gaussian(1.0, 4), sources.events.gaussian(1.0, 4), sources.coins.random(4)])


def _leftovers(policy: PrivatePolicy, waiting: Decision) -> list[str]:
    try:
        policy.update(waiting, 1.0)
        return ["a reward of an earlier life was taken in"]
    except InvalidInput:
        pass
    public = public_part(policy.state)
    secret = {path: array for path, array in flatten(policy.state).items() if path not in public}
    return [f"{path} still holds rows of an earlier life" for path, array in secret.items() if np.any(array)]


def errors_of_others() -> list[str]:
    """A user's bad arms are an error for that user alone."""
    found = []
    for name in ("stream-glm", "local-glm"):
        policy, batch = small_policy(3, name), np.tile(np.eye(2), (3, 1, 1))
        batch[1, 0] = 5.0
        try:
            answers = policy.select_batch(batch)
        except InvalidInput:
            found.append(f"{name}: one user's bad arms were reported to all of the batch")
            continue
        if [isinstance(answer, Decision) for answer in answers] != [True, False, True]:
            found.append(f"{name}: one user's bad arms changed what others were answered")
    return found
