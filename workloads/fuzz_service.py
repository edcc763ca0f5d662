"""Requests that nobody would write: no 5xx, no answer that the document does not have, no change by what is refused.

    python workloads/fuzz_service.py [--cases 10000] [--seed 1]

Starts a service on a store of its own.  Then

1. schemathesis sends at least so many requests, made from the OpenAPI document, half of which follow it and half of
   which break it; all operations but the stream of changes and the page;
2. what was answered with 4xx is sent again until all of it is refused, and then once more: everything that can be
   seen, and after the end of the process everything in the store, must be the same as before;
3. the bytes of `workloads/raw_requests.py` are sent, all at the same time, while decisions go on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import requests

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, it finds its neighbour as tests do

from tacit.service.events import EVENTS
from tacit.service.published import MODE_CHANGES, RELEASES
from tacit.service.sqlite_store import SQLiteStore
from tacit.service.users import USERS
from workloads.raw_requests import CASES, Target, sent

SKIPPED = ("/v1/live", "/")
"""A stream never ends; the page is no JSON."""
NAMES = ("fuzzed", "other")
LONG = 80_000.0
"""Seconds that rewards are waited for: nothing is settled by the clock meanwhile."""
MOST_ROUNDS = 20
Refused = requests.PreparedRequest


class Fuzzed:
    """A service under nonsense."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._log = folder, folder / "log"
        self.start()
        body = {"policy": "stream-glm", "dim": 2, "epsilon": 1.0, "delta": 1e-6, "reward_wait": LONG}
        for name in NAMES:
            assert self.client.put(f"/v1/policies/{name}", json=body).status_code == 201
            asked = {"contexts": [[1.0, 0.0]], "event_id": "known"}
            self.client.post(f"/v1/policies/{name}/decisions", json=asked)

    def start(self) -> None:
        """Begin, or go on from the store; at the same address, so that requests can be sent again."""
        port = str(getattr(self, "port", 0))
        config = self.folder / "options.toml"
        config.write_text("head_seconds = 1.0\nbody_seconds = 1.0\n")
        command = [sys.executable, "-m", "tacit", "serve", "--data", str(self.folder / "data"), "--port", port]
        command += ["--config", str(config)]
        environment = dict(os.environ)
        with self._log.open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().removeprefix("listening on ").strip()
        self.port = int(self.address.rpartition(":")[2])
        self.key = (self.folder / "data" / "admin.key").read_text().strip()
        self.client = httpx.Client(base_url=self.address, headers={"Authorization": f"Bearer {self.key}"}, timeout=60.0)

    def stop(self) -> int:
        """End it; the exit code."""
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def shown(self) -> dict[str, str]:
        """Everything that can be seen."""
        names = [each["name"] for each in self.client.get("/v1/policies").json()["policies"]]
        paths = ["/v1/policies", "/v1/privacy", "/v1/keys"]
        paths += [f"/v1/policies/{name}/{part}" for name in names for part in ("privacy", "history", "explanation")]
        return {path: self.client.get(path).text for path in paths}

    def stored(self) -> dict[str, Any]:
        """Everything in the store, but for who had it open and for how long; nobody serves it meanwhile."""
        store = SQLiteStore(self.folder / "data")
        try:
            found: dict[str, Any] = {"settings": dict(store.settings(""))}
            for journal in store.journals():
                note = {name: value for name, value in json.loads(journal.note or b"{}").items() if name != "uptime"}
                rows = [list(store.rows(journal.name, table)) for table in (EVENTS, RELEASES, USERS, MODE_CHANGES)]
                found[journal.name] = journal.config, journal.seq, note, rows
            return found
        finally:
            store.close()


class Fuzz:
    """Cases that schemathesis makes, and what became of them."""

    def __init__(self, service: Fuzzed, seed: int) -> None:
        import schemathesis

        self.service, self._chance = service, random.Random(seed)
        self.document = service.client.get("/openapi.json").json()
        schema = schemathesis.openapi.from_dict(self.document)
        schema.config.update(base_url=service.address)
        operations: list[Any] = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]
        self.operations = [operation for operation in operations if operation.path not in SKIPPED]
        self.seen = Counter[tuple[str, int]]()
        """How often each operation was answered with each status."""
        self.refused: list[Refused] = []

    def run(self, cases: int, seed: int) -> None:
        """Send at least so many cases; some operations have few that differ, so that there may be several rounds."""
        for round_number in range(MOST_ROUNDS):
            left = cases - self.seen.total()
            if left <= 0:
                return
            for operation in self.operations:
                self._operation(operation, max(1, -(-left // (2 * len(self.operations)))), seed + round_number)
        raise AssertionError(f"{MOST_ROUNDS} rounds made {self.seen.total()} cases, not {cases}")

    def _operation(self, operation: Any, count: int, seed: int) -> None:
        from hypothesis import HealthCheck, Phase, given, settings
        from hypothesis import seed as seeded
        from hypothesis.errors import Unsatisfiable
        from schemathesis import GenerationMode

        quiet = list(HealthCheck)
        form = settings(
            max_examples=count, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=quiet
        )
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            send = seeded(seed)(form(given(case=operation.as_strategy(generation_mode=mode))(self._send)))
            try:
                send()
            except Unsatisfiable:  # an operation without anything to break
                continue

    def _send(self, case: Any) -> None:
        """Send one case, mostly about what there is, and look at the answer."""
        parts = case.path_parameters if isinstance(case.path_parameters, dict) else {}
        if "name" in parts and self._chance.random() < 0.8:
            parts["name"] = self._chance.choice(NAMES)
        if "event_id" in parts:
            parts["event_id"] = self._chance.choice(["known", parts["event_id"]])
        if parts.get("key_name") == "admin":
            return
        answer = case.call(headers={"Authorization": f"Bearer {self.service.key}"}, timeout=60)
        operation, status = f"{case.method} {case.operation.path}", answer.status_code
        known = self.document["paths"][case.operation.path][case.method.lower()]["responses"]
        assert status < 500, f"{operation}: {status} {answer.text}"
        # A path parameter of slashes or nothing is another path, or another method of one.
        assert str(status) in known or status in (400, 404, 405, 422), f"{operation}: {answer.text}"
        self.seen[operation, status] += 1
        if status >= 400:
            self.refused.append(answer.request)

    def check_refusals(self) -> int:
        """Send what was refused once more, when all of it is refused: nothing may change.  Says how many that were."""
        self.refused += plain_refusals(self.service)
        while len(again := self._refused_again()) < len(self.refused):
            self.refused = again  # some were refused for what there was not yet
        assert self.service.stop() == 0
        stored = self.service.stored()
        self.service.start()
        shown = self.service.shown()
        assert len(self._refused_again()) == len(self.refused)
        assert self.service.shown() == shown
        assert self.service.stop() == 0
        assert self.service.stored() == stored
        self.service.start()
        return len(self.refused)

    def _refused_again(self) -> list[Refused]:
        with requests.Session() as session:
            session.trust_env = False
            answers = [(each, session.send(each, timeout=60).status_code) for each in self.refused]
        assert all(status < 500 for _, status in answers)
        return [each for each, status in answers if status >= 400]


def plain_refusals(service: Fuzzed) -> list[Refused]:
    """One request for each reason to refuse that chance seldom meets: they come as far as the writer, or the store."""
    policy, headers = f"/v1/policies/{NAMES[0]}", {"Authorization": f"Bearer {service.key}"}
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("PUT", f"{policy}/decisions/unknown/reward", {"reward": 1.0}),
        ("PUT", f"{policy}/decisions/known/reward", {"reward": 1.0, "arm": 7}),
        ("PUT", f"{policy}/decisions/known/reward", {"reward": 2.0}),
        ("POST", f"{policy}/decisions", {"contexts": [[0.0, 1.0]], "event_id": "known"}),
        ("POST", f"{policy}/decisions", {"contexts": [[2.0, 0.0]]}),
        ("PUT", policy, {"policy": "random", "dim": 2, "mode": "off"}),
        ("POST", "/v1/keys", {"name": "admin", "scopes": ["read"]}),
        ("DELETE", "/v1/keys/unknown-key", {}),
    ]
    return [
        requests.Request(method, service.address + path, headers=headers, json=body).prepare()
        for method, path, body in asked
    ]


def send_raw(service: Fuzzed, times: int) -> tuple[Counter[int], float]:
    """All raw requests, all at once, so many times each; their statuses, and the slowest decision meanwhile."""
    target, seen, wrong = Target(service.port, service.key, NAMES[0]), Counter[int](), list[str]()
    before = service.shown()

    def send(name: str) -> None:
        found = sent(CASES[name], target)
        seen.update(found)
        if not set(found) <= CASES[name].allowed:
            wrong.append(f"{name}: {found}")

    threads = [threading.Thread(target=send, args=(name,)) for name in CASES for _ in range(times)]
    for thread in threads:
        thread.start()
    slowest = 0.0
    while any(thread.is_alive() for thread in threads):
        start = time.monotonic()
        asked = service.client.post(f"/v1/policies/{NAMES[1]}/decisions", json={"contexts": [[1.0, 0.0]]})
        assert asked.status_code == 201, asked.text
        slowest = max(slowest, time.monotonic() - start)
    assert not wrong, wrong
    after, untouched = service.shown(), f"/v1/policies/{NAMES[0]}/"
    assert all(after[path] == text for path, text in before.items() if path.startswith(untouched))
    return seen, slowest


def main() -> None:
    """Fuzz and print."""
    parser = argparse.ArgumentParser(description=str(__doc__))
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        service = Fuzzed(Path(name))
        try:
            fuzz = Fuzz(service, chosen.seed)
            fuzz.run(chosen.cases, chosen.seed)
            refused = fuzz.check_refusals()
            statuses, slowest = send_raw(service, 5)
        finally:
            code = service.stop()
    for (operation, status), count in sorted(fuzz.seen.items()):
        print(f"{operation:<60}{status:>5}{count:>8}")
    print(f"{fuzz.seen.total()} requests, none answered with 5xx; exit code {code}")
    print(f"{refused} refused requests sent once more: everything shown and stored is the same")
    print(f"{len(CASES)} raw requests 5 times each, all at once: {dict(sorted(statuses.items()))}")
    print(f"slowest decision meanwhile: {slowest:.2f} s")


if __name__ == "__main__":
    main()
