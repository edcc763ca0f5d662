"""Requests that nobody would write, from the OpenAPI document: no 5xx, no answer that the document does not have.

    python benchmarks/fuzz_service.py [--cases 10000] [--seed 1]

Starts a service on a store of its own, gives schemathesis a key and all operations but the stream of changes, and
prints what was sent.  Half of the cases follow the document, half break it.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

SKIPPED = ("/v1/live", "/")
"""A stream never ends; the page is no JSON."""
NAMES = ("fuzzed", "other")


class Fuzzed:
    """A service under nonsense."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "tacit", "serve", "--data", str(folder / "data"), "--port", "0"]
        self.log = (folder / "log").open("w+")
        environment = os.environ | {"TACIT_COMPILE": "never"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().removeprefix("listening on ").strip()
        self.key = (folder / "data" / "admin.key").read_text().strip()
        self.client = httpx.Client(base_url=self.address, headers={"Authorization": f"Bearer {self.key}"}, timeout=60.0)
        body = {"policy": "stream-glm", "dim": 2, "epsilon": 1.0, "delta": 1e-6}
        for name in NAMES:
            assert self.client.put(f"/v1/policies/{name}", json=body).status_code == 201
            asked = {"contexts": [[1.0, 0.0]], "event_id": "known"}
            self.client.post(f"/v1/policies/{name}/decisions", json=asked)

    def stop(self) -> int:
        """End it; the exit code."""
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.close()
        return code


def fuzz(service: Fuzzed, cases: int, seed: int) -> Counter[tuple[str, int]]:
    """Send so many cases; how often each operation was answered with each status."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded
    from schemathesis import GenerationMode

    document = service.client.get("/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=service.address)
    chance, seen = random.Random(seed), Counter[tuple[str, int]]()
    operations: list[Any] = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]
    chosen = [operation for operation in operations if operation.path not in SKIPPED]
    each = max(1, cases // (2 * len(chosen)))
    for operation in chosen:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @seeded(seed)
            @settings(
                max_examples=each,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def send(case: Any) -> None:
                if isinstance(case.path_parameters, dict) and "name" in case.path_parameters and chance.random() < 0.8:
                    case.path_parameters["name"] = chance.choice(NAMES)
                if isinstance(case.path_parameters, dict) and "event_id" in case.path_parameters:
                    case.path_parameters["event_id"] = chance.choice(["known", case.path_parameters["event_id"]])
                if case.path_parameters and case.path_parameters.get("key_name") == "admin":
                    return
                seen[_sent(service, document, case)] += 1

            try:
                send()
            except Exception as error:
                if type(error).__name__ not in ("Unsatisfiable",):  # an operation without anything to break
                    raise
    return seen


def _sent(service: Fuzzed, document: dict[str, Any], case: Any) -> tuple[str, int]:
    """Send one case and look at the answer."""
    answer = case.call(headers={"Authorization": f"Bearer {service.key}"}, timeout=60)
    operation = f"{case.method} {case.operation.path}"
    known = document["paths"][case.operation.path][case.method.lower()]["responses"]
    assert answer.status_code < 500, f"{operation}: {answer.status_code} {answer.text}"
    # A path parameter of slashes or nothing is another path, or another method of one.
    assert str(answer.status_code) in known or answer.status_code in (400, 404, 405, 422), f"{operation}: {answer.text}"
    return operation, answer.status_code


def main() -> None:
    """Fuzz and print."""
    parser = argparse.ArgumentParser(description=str(__doc__))
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        service = Fuzzed(Path(name))
        try:
            seen = fuzz(service, chosen.cases, chosen.seed)
        finally:
            code = service.stop()
    for (operation, status), count in sorted(seen.items()):
        print(f"{operation:<60}{status:>5}{count:>8}")
    print(f"{sum(seen.values())} requests, none answered with 5xx; exit code {code}")


if __name__ == "__main__":
    main()
