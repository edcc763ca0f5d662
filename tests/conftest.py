"""Shared fixtures, and what keeps tests from depending on chance and on how fast a machine is."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tacit.environments import arrivals
from tacit.environments import registry as environments
from tacit.glm import links
from tacit.policies import registry
from tests.steady import MARK, entropy_of

hypothesis.settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("steady")


SERVERS = {"postgres", "database"}
"""Fixtures that start a server."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark of tests that draw from the operating system; they state their chance to fail."""
    config.addinivalue_line("markers", f"{MARK}: noise comes from the operating system (tests/steady.py)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a PostgreSQL server as slow; files of other slow tests say so themselves."""
    for item in items:
        if SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """A test, its fixtures included, draws from a tape of its own."""
    with entropy_of(None if item.get_closest_marker(MARK) else item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """A fixture that several tests share draws from its own, whichever test needs it first."""
    if fixturedef.scope == "function":
        return (yield)
    with entropy_of(f"{fixturedef.baseid}::{fixturedef.argname}[{getattr(request, 'param_index', 0)}]"):
        return (yield)


REGISTERED: tuple[dict[str, Any], ...] = (
    registry._REGISTERED,
    links._links,
    arrivals._KINDS,
    environments._KINDS,
)
"""What policies, links, rules of rewards and environments from outside of the package are entered in."""


@pytest.fixture(autouse=True)
def names_are_forgotten() -> Iterator[None]:
    """Forget the names that a test registers, such as those of the examples in documents, when it is over."""
    before = [dict(names) for names in REGISTERED]
    yield
    for names, earlier in zip(REGISTERED, before, strict=True):
        names.clear()
        names.update(earlier)


@pytest.fixture(autouse=True)
def own_registry(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tokens of resumed states go to a folder of the test's own."""
    folder = tmp_path_factory.mktemp("registry")
    monkeypatch.setenv("TACIT_STATE_DIR", str(folder))
    return folder
