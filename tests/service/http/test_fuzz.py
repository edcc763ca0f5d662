"""Requests from the OpenAPI document, valid and broken: a short form of benchmarks/fuzz_service.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts import benchmark


@pytest.mark.filterwarnings("ignore")
def test_nothing_that_is_sent_is_a_fault_of_the_service(tmp_path: Path) -> None:
    script = benchmark("fuzz_service")
    service = script.Fuzzed(tmp_path)
    try:
        seen = script.fuzz(service, cases=300, seed=1)
    finally:
        code = service.stop()
    assert code == 0
    assert sum(seen.values()) >= 200
    assert {status for _, status in seen} >= {200, 201, 401, 404, 422}
    assert len({operation for operation, _ in seen}) >= 15
