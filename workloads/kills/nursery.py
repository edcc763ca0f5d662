"""The parent process: `python -m workloads.kills.nursery FORM`; see `workloads.kills.lives`."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tacit.service.deployment import Deployment
from tacit.service.sqlite_store import SQLiteStore
from workloads.kills.hosted_life import live as live_hosted
from workloads.kills.lives import GONE, Spec
from workloads.kills.served_life import live as live_served
from workloads.kills.world import BODIES, arms_of, body_of

_FORMS: Final[dict[str, Callable[[Spec], None]]] = {"host": live_hosted, "http": live_served}
_LONGEST: Final = 1_200
"""Seconds after which a process ends that nobody has killed, such as one whose campaign was ended."""


def _rehearse() -> None:
    """Load whatever a process needs that decides and learns."""
    with tempfile.TemporaryDirectory() as folder:
        deployment = Deployment(SQLiteStore(Path(folder) / "store"))
        for name in BODIES:
            served, _ = deployment.put(name, body_of(name, 1.0, 1.0))
            for number in range(1, 5):
                request = served.intake.decision("n", contexts=arms_of(number).tolist(), event_id=str(number))[1]
                served.host.process([request, served.intake.reward("n", str(number), reward=0.5)])
        deployment.close()


def _live(form: str, spec: Spec) -> None:
    """In the child: its log is a file, its words go to the campaign."""
    try:
        signal.alarm(_LONGEST)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(Path(spec.folder) / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), 2)
        _FORMS[form](spec)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main(form: str) -> None:
    """Fork a process for each line, and say its number and how it ended."""
    _rehearse()
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _live(form, Spec.from_json(line))
        print(child, flush=True)
        print(GONE, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
