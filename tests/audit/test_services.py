"""The audit of a service: named neighbours, neighbours at which charges are attained, and random ones."""

from __future__ import annotations

import pytest

from tacit.audit.service_cases import SERVICE_CASES, TIGHT, random_script
from tacit.audit.services import OpenService, replay_service
from tacit.testing.services import InProcessService, SharedInProcessService

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("service", [InProcessService, SharedInProcessService], ids=["one process", "two"])
@pytest.mark.parametrize("name", SERVICE_CASES)
def test_neighbours_differ_in_releases_alone_and_by_no_more_than_was_charged(name: str, service: OpenService) -> None:
    case = SERVICE_CASES[name]
    outcome = replay_service(service, case.script())
    assert outcome.divergences == ()
    assert outcome.worst <= 1.0
    assert outcome.draws  # something was released
    if case.tight:
        assert outcome.worst >= TIGHT
    if case.still:
        assert outcome.mu == 0.0


@pytest.mark.parametrize("service", [InProcessService, SharedInProcessService], ids=["one process", "two"])
@pytest.mark.parametrize("index", range(6))
def test_random_neighbours(index: int, service: OpenService) -> None:
    """200 of them are played by `tacit audit service`."""
    outcome = replay_service(service, random_script(index))
    assert outcome.divergences == ()
    assert outcome.worst <= 1.0 + 1e-9
