"""One service for all tests that do not end it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.service.http.running import Running


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    service = Running(tmp_path_factory.mktemp("served") / "data", body_seconds=1.0, head_seconds=1.0)
    yield service
    assert service.stop() == 0


@pytest.fixture
def admin(running: Running) -> Iterator[httpx.Client]:
    with running.client() as client:
        yield client
