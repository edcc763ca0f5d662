"""One service for all tests that do not end it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.service.http.running import Running


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    service = Running(tmp_path_factory.mktemp("served") / "data", body_seconds=60.0, head_seconds=60.0)
    yield service
    assert service.stop() == 0


@pytest.fixture(scope="package")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One for clients that are slow on purpose: it waits for them no longer than other clients may pause by chance."""
    service = Running(tmp_path_factory.mktemp("impatient") / "data", body_seconds=2.5, head_seconds=2.5)
    yield service
    assert service.stop() == 0


@pytest.fixture
def admin(running: Running) -> Iterator[httpx.Client]:
    with running.client() as client:
        yield client
