"""docs/architecture.md draws the paths that decisions, rewards and reports really take."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.policies.registry import POLICIES
from tacit.privacy.continual import leaf_is_due
from tacit.shuffle import OuterProducts, Shuffler, analyze, calibrate, randomize
from tacit.testing.services import InProcessService

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
WALKS = (ROOT / "docs" / "decisions" / "0012-numpy-steps.md").read_text().partition("- **Walks.**")[2]
MOST_FILES = {"decision": 12, "reward": 3, "served decision": 15, "shuffled report": 12}


def drawn(path: str) -> list[str]:
    """The files that the page lists for a path, in order."""
    section = PAGE.partition(f"## The path of a {path}")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `(src/tacit/[\w/]+\.py)`", section, flags=re.MULTILINE)


def run_through(action: Callable[[], Any]) -> list[str]:
    """The package's files whose code runs during ``action``, in the order in which they are entered."""
    files: dict[str, None] = {}

    def watch(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT / "src" / "tacit"):
            files.setdefault(path.relative_to(ROOT).as_posix())

    sys.setprofile(watch)
    try:
        action()
    finally:
        sys.setprofile(None)
    return list(files)


def test_the_paths_of_a_decision_and_a_reward_are_as_drawn() -> None:
    policy = tacit.make_policy("stream-glm", dim=3, horizon=100, epsilon=1.0, delta=1e-6, seed=1)
    for _ in range(400):  # whatever happens once has happened
        policy.update(policy.select(np.eye(3)), 1.0)
    while policy._clock.ticks_left <= 0:  # the next decision is one in the middle of a leaf, as most are
        policy.update(policy.select(np.eye(3)), 1.0)
    assert not leaf_is_due(policy.state.stream)
    decisions: list[tacit.Decision] = []
    assert run_through(lambda: decisions.append(policy.select(np.eye(3)))) == drawn("decision")
    assert run_through(lambda: policy.update(decisions[0], 1.0)) == drawn("reward")


def test_the_path_of_a_served_decision_is_as_drawn(tmp_path: Path) -> None:
    """Of the service alone: what the policy does is drawn apart."""
    body = {"policy": "stream-glm", "dim": 3, "horizon": 1_000, "epsilon": 4.0, "delta": 0.01, "theta_bound": 2.0}
    policies: list[tacit.Policy] = []
    with closing(InProcessService(tmp_path / "service", body, policies.append)) as service:

        def decide(event: str) -> None:
            service.now += 1.0
            service.decide("caller", event, np.eye(3).tolist(), event)
            assert service.answers()[0].startswith(b"201")

        for number in range(400):
            decide(f"event {number}")
        while policies[0]._clock.ticks_left <= 0:
            decide(f"event {policies[0].decisions}")
        files = [file for file in run_through(lambda: decide("the last one")) if file.startswith("src/tacit/service/")]
    assert files == drawn("served decision")


def test_the_path_of_a_shuffled_report_is_as_drawn() -> None:
    protocol = calibrate(OuterProducts(3), users=300, epsilon=2.0, delta=1e-5, label="batch 1")
    rows = np.tile(np.eye(3), (100, 1))

    def release() -> None:
        rng = np.random.default_rng(0)
        reports, shuffler = randomize(protocol, rows, rng), Shuffler(protocol)
        shuffler.collect(reports)
        assert analyze(protocol, shuffler.release(rng)).reports == 300

    release()  # whatever happens once has happened
    assert run_through(release) == drawn("shuffled report")


def test_the_paths_are_short() -> None:
    for path, most in MOST_FILES.items():
        assert 0 < len(drawn(path)) <= most
        assert all((ROOT / file).exists() for file in drawn(path))


@pytest.mark.parametrize("name", list(POLICIES))
def test_walks_of_all_policies_are_as_short_as_decision_12_says(name: str) -> None:
    budget: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6} if tacit.policy_class(name).private else {}
    policy = tacit.make_policy(name, dim=3, horizon=2_000, seed=1, **budget)
    for _ in range(400):  # whatever happens once has happened
        policy.update(policy.select(np.eye(3)), 1.0)
    lengths: dict[bool, list[int]] = {True: [], False: []}
    decisions: list[tacit.Decision] = []
    for _ in range(60):
        releases = policy._clock.ticks_left <= 0
        lengths[releases].append(len(run_through(lambda: decisions.append(policy.select(np.eye(3))))))
        policy.update(decisions[-1], 1.0)
    assert max(lengths[False]) <= MOST_FILES["decision"]
    told = re.search(rf"(\d+)\s+(?:files\s+)?for\s+`{re.escape(name)}`", WALKS)
    assert bool(told) == bool(lengths[True])
    if told:
        assert max(lengths[True]) <= int(told[1])


def test_every_file_and_class_that_the_page_names_exists() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "src" / "tacit").rglob("*.py"))
    for file in re.findall(r"`((?:policies|privacy|audit|experiments)/[\w/]+\.py)`", PAGE):
        assert (ROOT / "src" / "tacit" / file).exists(), file
    for file in re.findall(r"`(tests/[\w/]+\.py)`", PAGE):
        assert (ROOT / file).exists(), file
    for name in set(re.findall(r"`([A-Z]\w+)`", PAGE)) - {"NamedTuple"}:
        assert re.search(rf"\bclass {name}\b|^{name}\b", sources, flags=re.MULTILINE), name
