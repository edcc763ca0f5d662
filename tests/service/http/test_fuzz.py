"""Requests from the OpenAPI document, valid and broken: a short form of workloads/fuzz_service.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from workloads import fuzz_service as script

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore")
def test_nothing_that_is_sent_is_a_fault_of_the_service_or_changes_it_when_refused(tmp_path: Path) -> None:
    service = script.Fuzzed(tmp_path)
    try:
        fuzz = script.Fuzz(service, seed=1)
        fuzz.run(cases=300, seed=1)
        refused = fuzz.check_refusals()
        decisions = service.client.get("/v1/policies/other").json()["decisions"]
    finally:
        code = service.stop()
    assert code == 0
    assert fuzz.seen.total() >= 300
    assert refused >= 80
    assert decisions >= 1
    assert {status for _, status in fuzz.seen} >= {200, 201, 404, 422}
    assert len({operation for operation, _ in fuzz.seen}) >= 15
