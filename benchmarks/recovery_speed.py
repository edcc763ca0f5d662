"""How long a restart takes: after a kill with many events since the snapshot, and after a good end.

    python benchmarks/recovery_speed.py --events 1000000
    python benchmarks/recovery_speed.py --events 200000 --policy joint-linucb --dim 20

An event is an entry of the log: a decision or a reward (releases come on top).  Printed are processor times of an entry
in microseconds: to read and check it, to unpack it, and to apply it.  The restart is a process of its own, timed from
its start to the first answer.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

import numpy as np

import tacit
from tacit.service.journal import PolicyJournal
from tacit.service.packing import unpack_entry
from tacit.service.sqlite_store import SQLiteStore

ARMS, NAME = 20, "policy"
TARGET_RECOVERY, TARGET_RESTART = 60.0, 3.0
_RESTART = """
import sys, time
begun = time.perf_counter()
import numpy as np, tacit
with tacit.open_policy(sys.argv[1]) as policy:
    policy.select(np.eye(policy.config.dim))
    print(time.perf_counter() - begun)
"""


def fill(folder: Path, policy: str, dim: int, events: int) -> None:
    """A store with so many decisions and rewards after its only snapshot, as a kill leaves it."""
    store = SQLiteStore(folder, synchronous="OFF")
    arguments = {"dim": dim, "epsilon": 1.0, "delta": 1e-6, "theta_bound": 3.0}
    journal = PolicyJournal.begin(store, NAME, policy, arguments, snapshot_every=1 << 60)
    rng = np.random.default_rng(1)
    arms = rng.standard_normal((500, ARMS, dim))
    arms /= np.linalg.norm(arms, axis=2, keepdims=True)
    for start in range(0, events // 2, len(arms)):
        with journal.working() as working:
            for user in arms[: events // 2 - start]:
                working.update(working.select(user), float(rng.random() < 0.3))
            journal.commit()
    store.close()


def recovered(folder: Path, profile: bool = False) -> tuple[float, int]:
    """Seconds of a recovery in this process, and how many entries it applied; prints what an entry costs."""
    store, parts = SQLiteStore(folder), [time.process_time()]
    deque(store.read(NAME).entries, maxlen=0)
    parts.append(time.process_time())
    deque(map(unpack_entry, store.read(NAME).entries), maxlen=0)
    parts.append(time.process_time())
    begun, profiler = time.perf_counter(), cProfile.Profile()
    if profile:
        profiler.enable()
    journal = PolicyJournal(store, NAME, snapshot_every=1 << 60)
    profiler.disable()
    taken = time.perf_counter() - begun
    parts.append(time.process_time())
    read, unpacked, applied = 1e6 * np.diff(parts) / (journal.seq - journal.snapshot_seq)
    print(f"read {read:.1f}, unpack {unpacked - read:.1f}, apply {applied - unpacked:.1f} us an entry", flush=True)
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(18)
    store.close()
    return taken, journal.seq - journal.snapshot_seq


def restarted(folder: Path) -> float:
    """Seconds of a process that opens the store, decides and ends."""
    command = [sys.executable, "-c", _RESTART, str(folder)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Fill, recover, restart; exits with 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--policy", default="stream-glm")
    parser.add_argument("--dim", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "store"
        begun = time.perf_counter()
        fill(folder, given.policy, given.dim, given.events)
        print(f"{given.events:,} events written in {time.perf_counter() - begun:.1f} s", flush=True)
        seconds, entries = recovered(folder, given.profile)
        print(f"recovery of {entries:,} entries: {seconds:.1f} s ({1e6 * seconds / entries:.1f} us an entry)")
        with tacit.open_policy(folder):
            pass
        restarts = sorted(restarted(folder) for _ in range(3))
        print(f"a normal restart, with its first decision: {restarts[1]:.2f} s")
    if seconds > TARGET_RECOVERY or restarts[1] > TARGET_RESTART:
        raise SystemExit(f"targets are {TARGET_RECOVERY:g} s and {TARGET_RESTART:g} s")


if __name__ == "__main__":
    main()
