"""How long a restart takes: after a kill with many events since the snapshot, and after a good end.

    python benchmarks/recovery_speed.py --events 1000000

An event is an entry of the log: a decision or a reward (releases come on top).  Kernels are taken from the cache, as in
any process but the first; the restart is a process of its own, timed from its start to the first answer.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import tacit
from tacit.service.journal import PolicyJournal
from tacit.service.sqlite_store import SQLiteStore

DIM, ARMS, NAME = 5, 20, "policy"
TARGET_RECOVERY, TARGET_RESTART = 60.0, 3.0
_RESTART = """
import sys, time
begun = time.perf_counter()
import numpy as np, tacit
with tacit.open_policy(sys.argv[1]) as policy:
    policy.select(np.eye(5))
    print(time.perf_counter() - begun)
"""


def fill(folder: Path, policy: str, events: int) -> None:
    """A store with so many decisions and rewards after its only snapshot, as a kill leaves it."""
    store = SQLiteStore(folder, synchronous="OFF")
    arguments = {"dim": DIM, "epsilon": 1.0, "delta": 1e-6, "theta_bound": 3.0}
    journal = PolicyJournal.begin(store, NAME, policy, arguments, snapshot_every=1 << 60)
    rng = np.random.default_rng(1)
    arms = rng.standard_normal((500, ARMS, DIM))
    arms /= np.linalg.norm(arms, axis=2, keepdims=True)
    for start in range(0, events // 2, len(arms)):
        with journal.working() as working:
            for user in arms[: events // 2 - start]:
                working.update(working.select(user), float(rng.random() < 0.3))
            journal.commit()
    store.close()


def recovered(folder: Path, profile: bool = False) -> tuple[float, int]:
    """Seconds of a recovery in this process, and how many entries it applied."""
    store = SQLiteStore(folder)
    begun, profiler = time.perf_counter(), cProfile.Profile()
    if profile:
        profiler.enable()
    journal = PolicyJournal(store, store.claim(NAME), snapshot_every=1 << 60)
    profiler.disable()
    taken = time.perf_counter() - begun
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
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "store"
        begun = time.perf_counter()
        fill(folder, given.policy, given.events)
        print(f"{given.events:,} events written in {time.perf_counter() - begun:.1f} s", flush=True)
        seconds, entries = recovered(folder, given.profile)
        print(f"recovery of {entries:,} entries: {seconds:.1f} s ({1e6 * seconds / given.events:.1f} us an event)")
        with tacit.open_policy(folder):
            pass
        restarts = sorted(restarted(folder) for _ in range(3))
        print(f"a normal restart, with its first decision: {restarts[1]:.2f} s")
    if seconds > TARGET_RECOVERY or restarts[1] > TARGET_RESTART:
        raise SystemExit(f"targets are {TARGET_RECOVERY:g} s and {TARGET_RESTART:g} s")


if __name__ == "__main__":
    main()
