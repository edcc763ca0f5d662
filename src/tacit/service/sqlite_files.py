"""The files of a store on disk: who may use it, whether it is the original, what it is on.

tacit.db        the database (mode 600, in a folder of mode 700)
tacit.db-wal    what was committed since the last checkpoint; gone after an orderly end
tacit.lock      locked for the life of the process that works on the store, whose number is in it
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import uuid
from pathlib import Path

from tacit.errors import StoreError, StoreInUse
from tacit.policies.persistence import sync_folder

DATABASE = "tacit.db"
LOCK = "tacit.lock"
MACHINE_ID = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
NETWORK = {"9p", "afs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "lustre", "nfs", "nfs4", "ocfs2", "smb3", "smbfs"}
OVER_FUSE = {"gcsfuse", "rclone", "s3fs", "smbnetfs", "sshfs"}
"""Where a lock may not be seen by other machines, or a sync may return before the data are safe."""


def prepare_folder(folder: Path) -> None:
    """Make the folder, for its owner alone, unless it is there; refuse one that cannot keep the store's promises."""
    if os.name == "nt":
        raise StoreError("Windows has no locks that end with their process (flock): use PostgreSQL, or Linux")
    try:
        folder.mkdir(mode=0o700)
        sync_folder(folder.parent)
    except FileExistsError:
        if not folder.is_dir():
            raise StoreError(f"{folder} is not a folder: a store needs one of its own") from None
    except OSError as error:
        raise StoreError(f"cannot make the folder {folder} for the store ({error}): make its parent first") from error
    mounts = ""
    with contextlib.suppress(OSError):  # macOS does not say what is mounted where
        mounts = Path("/proc/self/mounts").read_text(errors="replace")
    if kind := network_mount(folder.resolve(), mounts):
        raise StoreError(
            f"{folder} is on a network file system ({kind}), where locks and syncs cannot be relied on: keep the store "
            "on a disk of this machine, or use PostgreSQL"
        )


def network_mount(path: Path, mounts: str) -> str | None:
    """The type of the file system that a path is on, if that is one over a network; ``mounts`` as in /proc/self/mounts.

    >>> network_mount(Path("/data/tacit"), "/dev/sda / ext4 rw 0 0\\nserver:/x /data nfs4 rw 0 0")
    'nfs4'
    """
    found, length = "", -1
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        place = Path(fields[1].encode().decode("unicode_escape"))  # a space is written \040
        if path.is_relative_to(place) and len(place.parts) >= length:  # of two at one place the later one covers
            found, length = fields[2], len(place.parts)
    return found if found.removeprefix("fuse.") in NETWORK | OVER_FUSE else None


def make_durable(path: Path) -> None:
    """Write a file that was left by another process once more, so that what can be read of it is on the disk too.

    After a failed sync Linux keeps pages that it could not write, as if it had: they can be read, and a further sync
    succeeds without writing them.  A checkpoint that trusts such a log and is cut short leaves a database that is
    neither old nor new.  Pages of a new file are written by its own sync.
    """
    if not path.exists():
        return
    copy = path.with_name(path.name + ".copy")
    descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as target, path.open("rb") as source:
        shutil.copyfileobj(source, target, 1 << 20)
        target.flush()
        os.fsync(descriptor)
    copy.replace(path)
    sync_folder(path.parent)


def identity(database: Path) -> str:
    """What tells a store from its copies: device and inode of the database, and the machine.

    A copy of the files has another inode; a copy of the disk under the same machine, another device.  A clone of the
    whole machine has the same identity and cannot be told from the original.  Some file systems (overlays of
    containers, several disks in another order) get another device number when they are mounted again.
    """
    status = database.stat()
    return f"device {status.st_dev}, inode {status.st_ino}, machine {_machine()}"


def _machine() -> str:
    """An id that survives restarts; "unknown" where there is none, as in many containers."""
    for path in MACHINE_ID:
        with contextlib.suppress(OSError):
            if found := path.read_text().strip():
                return found
    # network addresses of containers, which run Linux, change whenever they are made anew
    return "unknown" if sys.platform.startswith("linux") else f"{uuid.getnode():012x}"


class FolderLock:
    """The right to work on a folder, for as long as this object lives in the process that made it.

    The lock belongs to the open file, which a forked process shares.  Closing it there leaves the lock in place;
    unlocking would take it away from the parent, so that only the process that locked does that.
    """

    def __init__(self, folder: Path) -> None:
        import fcntl

        self._descriptor = -1
        try:
            self._descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        except BlockingIOError as error:
            owner = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            self.close(unlock=False)
            whose = "this process" if owner == str(os.getpid()) else f"process {owner}"
            raise StoreInUse(f"{whose} works on the store in {folder}: end that first; it has one owner") from error
        except OSError as error:
            self.close(unlock=False)
            raise StoreError(f"{folder / LOCK} cannot be locked ({error}): a store needs that") from error

    def close(self, *, unlock: bool) -> None:
        """Let others have the folder; without ``unlock`` only forget it: other processes may share the open file."""
        if self._descriptor < 0:
            return
        if unlock:
            import fcntl

            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # even if a forked process still has the file
        os.close(self._descriptor)
        self._descriptor = -1
