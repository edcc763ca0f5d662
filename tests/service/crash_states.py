"""What a disk may hold after a power loss: all that was synced, and of the rest anything.

Writes that were not synced are there or not, whole or in sectors of 512 bytes, in any order; so are changes of a file's
length.  A deleted file may be back until the folder was synced, which SQLite does with the first sync of a new log.

    python -m tests.service.crash_states 5000     so many states, for longer runs
"""

from __future__ import annotations

import itertools
import random
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tacit.errors import StoreError
from tacit.service.sqlite_files import DATABASE
from tacit.service.sqlite_store import SQLiteStore
from tacit.service.store import Group, Row, Store
from tests.contracts.stores import Model
from tests.service.recorded_disk import Disk, Event

SECTOR = 512
DONE = Event("done")
Contents = dict[str, object]


class File:
    """A file of the disk: what is safe of it, what was done since, and what can be read of it while the power is on."""

    def __init__(self, safe: bytes | None = None, deleted: Sequence[File] = ()) -> None:
        self.safe = safe
        self.pending: list[Event] = []
        self.readable = bytearray(safe or b"")
        self.deleted = deleted

    def take(self, event: Event) -> File:
        """The file after an event."""
        if event.kind == "delete":
            return File(deleted=[*self.deleted, self])
        if event.kind == "renewed" and self.exists:
            return File(bytes(self.readable))
        if event.kind == "sync" and self.exists:
            self.safe = bytes(_applied(self.safe, self.pending))
            self.pending, self.deleted = [], ()
        elif event.kind == "sync failed":
            self.pending = []  # Linux forgets that they were to be written, and still shows them
        elif event.kind in ("write", "truncate"):
            self.pending.append(event)
            _apply(self.readable, event)
        return self

    @property
    def exists(self) -> bool:
        return self.safe is not None or bool(self.pending)

    def after_loss(self, rng: random.Random) -> bytes | None:
        """One of the contents that the file may have when the power comes back."""
        if self.deleted and rng.random() < 0.5:
            return rng.choice(self.deleted).after_loss(rng)
        if self.safe is None and (not self.pending or rng.random() < 0.2):
            return None
        return bytes(_applied(self.safe, _survivors(self.pending, rng)))


def _applied(content: bytes | None, events: list[Event]) -> bytearray:
    result = bytearray(content or b"")
    for event in events:
        _apply(result, event)
    return result


def _apply(content: bytearray, event: Event) -> None:
    if event.kind == "truncate":
        del content[event.offset :]
    content.extend(bytes(max(0, event.offset - len(content))))
    content[event.offset : event.offset + len(event.data)] = event.data


def _survivors(pending: list[Event], rng: random.Random) -> list[Event]:
    """What of the writes that were not synced has reached the disk, and in which order."""
    way = rng.choice(["none", "all", "prefix", "subset", "torn", "torn", "shuffled", "shuffled"])
    if way in ("none", "all"):
        return pending if way == "all" else []
    if way == "prefix":
        return pending[: rng.randint(0, len(pending))]
    kept = pending if way == "subset" else [piece for event in pending for piece in _sectors(event)]
    share = rng.choice([0.1, 0.5, 0.9])
    kept = [piece for piece in kept if rng.random() < share]
    if way == "shuffled":
        rng.shuffle(kept)
    return kept


def _sectors(event: Event) -> Iterator[Event]:
    if event.kind != "write":
        yield event
        return
    start, end = event.offset, event.offset + len(event.data)
    cuts = [start, *range((start // SECTOR + 1) * SECTOR, end, SECTOR), end]
    for left, right in itertools.pairwise(cuts):
        yield Event("write", event.file, left, event.data[left - start : right - start])


@dataclass
class Recording:
    """A piece of work on a store: what the disk saw, and what the store held after each acknowledged step."""

    folder: Path
    start: bytes
    events: list[Event]
    states: list[Contents]


@dataclass
class Outcome:
    """What was found in the states of a disk after power losses."""

    states: int = 0
    unsynced: int = 0
    lost: list[str] = field(default_factory=list)


def record(folder: Path, synchronous: str, seed: int, steps: int = 150) -> Recording:
    """Work on a store with all that it offers, on a recorded disk."""
    recording, disk = begin(folder)
    work = Work(random.Random(seed))
    store = reopen(recording, disk, synchronous)
    for number in range(steps):
        store = work.step(store, number, lambda: reopen(recording, disk, synchronous))
        disk.events.append(DONE)
        recording.states.append(work.contents())
    assert contents(store) == recording.states[-1], "the model of the work is wrong"
    end(store, orderly=False)
    return recording


def begin(folder: Path) -> tuple[Recording, Disk]:
    """An empty store that is safe on the disk, and the disk."""
    SQLiteStore(folder, synchronous="OFF").close()
    disk = Disk()
    return Recording(folder, (folder / DATABASE).read_bytes(), disk.events, [{"settings": {}}]), disk


def reopen(recording: Recording, disk: Disk, synchronous: str = "FULL") -> SQLiteStore:
    return SQLiteStore(recording.folder, synchronous=synchronous, connect=disk.connect)


def end(store: SQLiteStore, orderly: bool) -> None:
    """Close a store, or leave it as a process does that is killed."""
    if not orderly:
        store._abandon()
        store._failure = "killed"
    store.close()


class Work:
    """Steps of a workload, and plain Python that knows what the store then holds."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.models: dict[str, Model] = {}
        self.settings: dict[str, bytes] = {}

    def step(self, store: SQLiteStore, number: int, reopen: Callable[[], SQLiteStore]) -> SQLiteStore:
        if number < 2:
            store.create("ab"[number], b"config", b"first")
            self.models["ab"[number]] = Model()
            return store
        name = self.rng.choice("ab")
        model = self.models[name]
        if number % 31 == 0:
            end(store, orderly=number % 2 == 0)
            store = reopen()
        elif number % 23 == 0:
            snapshot = self.rng.randbytes(self.rng.choice([100, 20_000]))
            store.compact(name, model.seq, snapshot)
            model.snapshot, model.snapshot_seq, model.entries = snapshot, model.seq, []
        elif number % 19 == 0:
            put = {f"key {number % 3}": self.rng.randbytes(20)}
            store.change_settings(put)
            self.settings |= put
        else:
            if number % 13 == 0:
                store.tend()  # moves the log into the database
            group = self.group(number)
            store.append(name, model.seq, group)
            model.take(group)
        return store

    def group(self, number: int, many: bool = False) -> Group:
        rng = self.rng
        count = (40, 30) if many else (rng.choice([0, 1, 1, 5, 40]), rng.choice([0, 1, 5, 30]))
        entries = [rng.randbytes(rng.choice([20, 120, 120, 6000])) for _ in range(count[0])]
        keys = [bytes([rng.randrange(60)]) * 16 for _ in range(count[1])]
        rows = {key: Row(key, number, rng.randbytes(60)) for key in keys}
        forget = {"t": number - 40} if rng.random() < 0.2 else {}
        return Group(entries, {"t": rows}, forget, rng.randbytes(8))

    def contents(self) -> Contents:
        described: Contents = {
            name: (model.note, model.snapshot, list(model.entries), dict(model.tables["t"]))
            for name, model in self.models.items()
        }
        return described | {"settings": dict(self.settings)}


def contents(store: Store) -> Contents:
    """Everything that a store holds."""
    held: Contents = {"settings": dict(store.settings(""))}
    for journal in store.journals():
        recovery = store.read(journal.name)
        rows = {row.key: row for row in store.scan(journal.name, "t", -1, 10_000)}
        held[journal.name] = (journal.note, recovery.snapshot, list(recovery.entries), rows)
    return held


def lose_power(recording: Recording, count: int, seed: int, first: int = 1) -> Outcome:
    """Cut the power at ``count`` points of the work, from the first on, and look at what the store holds then."""
    rng, outcome = random.Random(seed), Outcome()
    points = sorted(rng.randrange(first, len(recording.events) + 1) for _ in range(count))
    files = {DATABASE: File(recording.start)}
    seen = done = 0
    for point in points:
        for event in recording.events[seen:point]:
            if event == DONE:
                done += 1
            else:
                files[event.file] = files.get(event.file, File()).take(event)
        seen = point
        outcome.states += 1
        outcome.unsynced += any(file.pending for file in files.values())
        problem = _problem(recording, {name: file.after_loss(rng) for name, file in files.items()}, done)
        if problem:
            outcome.lost.append(f"power lost at event {point} of {len(recording.events)}: {problem}")
    return outcome


def _problem(recording: Recording, image: dict[str, bytes | None], done: int) -> str:
    """What is wrong with a store on a disk in this state; all is well if it holds all steps that were acknowledged."""
    for name in {DATABASE, f"{DATABASE}-wal", *image}:
        path, content = recording.folder / name, image.get(name)
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(content)  # in place: the store knows its database by its inode
    try:
        store = SQLiteStore(recording.folder, synchronous="OFF")
    except StoreError as error:
        return f"it refuses: {error}"
    try:
        found = contents(store)
    except StoreError as error:
        return f"it is damaged: {error}"
    finally:
        store.close()
    connection = sqlite3.connect(recording.folder / DATABASE)
    sound = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    if sound != [("ok",)]:
        return f"SQLite finds it damaged: {sound[0][0]}"
    if found not in recording.states[done : done + 2]:  # the step that was under way is there as a whole, or not at all
        earlier = found in recording.states[:done]
        return f"{'acknowledged steps are gone' if earlier else 'a step is there in part'} ({done} were acknowledged)"
    return ""


def search(states: int, synchronous: str, seed: int) -> Outcome:
    """Record one piece of work and cut its power many times."""
    memory = Path("/dev/shm")  # syncs cost nothing there
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        return lose_power(record(Path(folder) / "store", synchronous, seed), states, seed)


if __name__ == "__main__":
    print(search(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "FULL", seed=int((sys.argv + ["1"] * 3)[3])))
