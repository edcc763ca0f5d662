"""A life without HTTP: groups of requests to hosts, as fast as they commit, until the process is killed."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tacit.service.deployment import Deployment, Served
from tacit.service.host import Answer, Refusal, Request
from workloads.kills.lives import LISTENING, Spec
from workloads.kills.mutants import broken
from workloads.kills.tapped import Tap, take_snapshots_often, tapped, write
from workloads.kills.world import BODIES, arms_of, body_of, reward_of

_WAIT, _MEMORY = 0.08, 1e6
_TOLD = "told"


class HostedLife:
    """Load until the end; writes down what was acknowledged and what others could see."""

    def __init__(self, spec: Spec) -> None:
        self._folder, self._random = Path(spec.folder), random.Random(spec.seed)
        write(self._folder / _TOLD, b"\n")  # ends a line that the last life has begun
        take_snapshots_often()
        kind = tapped(Tap(self._folder, spec.life, spec.aim), broken(spec.mutant))
        self._deployment = Deployment(kind(self._folder / "store"))
        for name in BODIES:
            self._deployment.put(name, body_of(name, _WAIT, _MEMORY))
        self._numbers = {name: _last_number(self._folder, name) for name in BODIES}

    def run(self) -> None:
        """Work; somebody else looks all the time."""
        print(LISTENING, flush=True)
        threading.Thread(target=self._look, daemon=True).start()
        while True:
            for name in BODIES:
                self._group(self._deployment.get(name))
            if self._random.random() < 0.2:
                time.sleep(0.01)
                self._deployment.tick()

    def _look(self) -> None:
        seen: dict[str, Any] = {}
        while True:
            for name in BODIES:
                found = self._deployment.get(name).host.published
                if found is not seen.get(name) and found.estimate is not None:
                    seen[name] = found
                    self._note({"policy": name, "seen": [found.releases, found.estimate]})
            time.sleep(0.0005)

    def _note(self, what: dict[str, Any]) -> None:
        write(self._folder / _TOLD, json.dumps(what).encode() + b"\n")

    def _group(self, served: Served) -> None:
        """New decisions, old ones again, rewards new and old, all in one group; then what was answered."""
        newest, rng = self._numbers[served.name], self._random
        fresh = list(range(newest + 1, newest + 1 + rng.randrange(1, 5)))
        self._numbers[served.name] = fresh[-1]
        asked = fresh + [rng.randint(max(1, newest - 30), newest) for _ in range(rng.randrange(3)) if newest]
        rewarded = [rng.randint(max(1, newest - 12), fresh[-1]) for _ in range(rng.randrange(6))]
        self._note({"policy": served.name, "asked": asked})
        requests: list[Request] = [
            served.intake.decision("n", contexts=arms_of(number).tolist(), event_id=str(number))[1] for number in asked
        ]
        requests += [served.intake.reward("n", str(number), reward=reward_of(number)) for number in rewarded]
        answers = served.host.process(requests)
        decided = [[n, a.arm] for n, a in zip(asked, answers, strict=False) if isinstance(a, Answer)]
        late = answers[len(asked) :]
        told = [[n, a.name if isinstance(a, Refusal) else "ok"] for n, a in zip(rewarded, late, strict=True)]
        self._note({"policy": served.name, "decided": decided, "rewarded": told, "expected": len(asked)})


def live(spec: Spec) -> None:
    """Work until the end of the process."""
    HostedLife(spec).run()


def told_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """What all lives have told, in order; a line that a kill has torn is left out."""
    path = folder / _TOLD
    for line in path.read_bytes().splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def _last_number(folder: Path, name: str) -> int:
    asked = (max(told["asked"]) for told in told_lines(folder) if told["policy"] == name and "asked" in told)
    return max(asked, default=0)
