"""A disk that remembers every write and sync, and can fail: SQLite's own file calls, through apsw."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import apsw

_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Event:
    """Something that happened to a file, or (without one) in the work on the store."""

    kind: str
    file: str = ""
    offset: int = 0
    data: bytes = b""


Fault = Callable[[Event], None]
"""Called before an event takes place; raises what the disk shall answer."""


@dataclass
class Disk:
    """Connections of ``connect`` go through it; ``events`` is what they did, in order."""

    events: list[Event] = field(default_factory=list)
    fault: Fault | None = None
    renews: bool = True
    """Whether a store writes the log that it finds anew; without, to see what that is good for."""
    log_inode: int = 0
    """Of the log that was written last."""
    name: str = field(default_factory=lambda: f"recorded-{next(_NUMBERS)}")

    def __post_init__(self) -> None:
        self._vfs = _RecordingVFS(self)

    def happens(self, event: Event) -> None:
        if self.fault is not None:
            self.fault(event)
        self.events.append(event)

    def connect(self, path: Path) -> sqlite3.Connection:
        """What a store takes as ``connect``; it should just have written the log of another process anew."""
        log = path.with_name(f"{path.name}-wal")
        if self.renews and log.exists() and log.stat().st_ino != self.log_inode:
            self.events.append(Event("renewed", log.name))
        return cast(sqlite3.Connection, _RecordedConnection(path, self.name))


class _RecordingVFS(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        super().__init__(disk.name, "")
        self._disk = disk

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _RecordingFile(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self._disk.happens(Event("delete", Path(filename).name))
        super().xDelete(filename, syncdir)

    def excepthook(self, etype: Any, evalue: Any, etraceback: Any) -> bool:
        """Injected errors also come out of the statement; nothing is to be printed."""
        return True


class _RecordingFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self._path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "temporary")
        self._file = self._path.name

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._disk.happens(Event("write", self._file, offset, bytes(data)))
        super().xWrite(data, offset)
        if self._file.endswith("-wal"):
            self._disk.log_inode = self._path.stat().st_ino

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.happens(Event("truncate", self._file, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.happens(Event("sync", self._file))

    def excepthook(self, etype: Any, evalue: Any, etraceback: Any) -> bool:
        return True


@dataclass(frozen=True)
class _Result:
    """What a store asks of a cursor."""

    rows: list[Any]
    rowcount: int

    def fetchall(self) -> list[Any]:
        return self.rows


class _RecordedConnection:
    """What a store asks of a connection of the standard library, through apsw, with errors as that library has them."""

    def __init__(self, path: Path, vfs: str) -> None:
        with _translated():
            self._apsw = apsw.Connection(str(path), vfs=vfs, statementcachesize=100)
        self._abandoned = False

    def execute(self, statement: str, values: Sequence[Any] = ()) -> _Result:
        with _translated():
            return _Result(self._apsw.execute(statement, values).fetchall(), self._apsw.changes())

    def executemany(self, statement: str, many: Iterable[Sequence[Any]]) -> None:
        with _translated():
            self._apsw.executemany(statement, many).fetchall()

    def setconfig(self, option: int, enable: bool) -> None:
        """Python 3.12 has it: how a store is abandoned."""
        self._apsw.config(option, int(enable))
        self._abandoned = True

    def close(self) -> None:
        if self._abandoned:
            self._apsw.close(True)
            return
        with suppress(apsw.Error):  # SQLite itself does not tell what fails when it ends
            self._apsw.close()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        translated = sqlite3.OperationalError(str(error) or type(error).__name__)
        translated.sqlite_errorcode = getattr(error, "extendedresult", 0) or getattr(error, "result", 0)
        raise translated from error
