"""docs/architecture.md draws the paths that a decision and a reward really take."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import tacit
from tacit.policies.steps import run, steps_of
from tacit.privacy.continual import leaf_is_due

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
MOST_FILES = {"decision": 6, "reward": 4}


def drawn(path: str) -> list[str]:
    """The files that the page lists for a path, in order."""
    section = PAGE.partition(f"## The path of a {path}")[2].partition("\n## ")[0]
    return re.findall(r"^\d\. `(src/tacit/[\w/]+\.py)`", section, flags=re.MULTILINE)


def run_through(action: Callable[[], Any]) -> set[str]:
    """The package's files whose Python code runs during ``action``; compiled kernels do not show."""
    files: set[str] = set()

    def watch(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT / "src" / "tacit"):
            files.add(path.relative_to(ROOT).as_posix())

    sys.setprofile(watch)
    try:
        action()
    finally:
        sys.setprofile(None)
    return files


def _home(function: Any) -> str:
    code = getattr(function, "function", function).__code__
    return Path(code.co_filename).relative_to(ROOT).as_posix()


def test_the_paths_of_a_decision_and_a_reward_are_as_drawn() -> None:
    policy = tacit.make_policy("stream-glm", dim=3, horizon=100, epsilon=1.0, delta=1e-6, seed=1)
    for _ in range(400):  # whatever happens once has happened
        policy.update(policy.select(np.eye(3)), 1.0)
    while policy._ticks_left <= 0:  # the next decision is one in the middle of a leaf, as most are
        policy.update(policy.select(np.eye(3)), 1.0)
    assert not leaf_is_due(policy.state.stream)
    decisions: list[tacit.Decision] = []
    steps = steps_of(type(policy.state))

    selecting = run_through(lambda: decisions.append(policy.select(np.eye(3))))
    selecting |= {_home(run), _home(steps.advance), _home(steps.choose)}
    assert selecting == set(drawn("decision"))

    rewarding = run_through(lambda: policy.update(decisions[0], 1.0)) | {_home(steps.learn)}
    assert rewarding == set(drawn("reward"))


def test_the_paths_are_short() -> None:
    for path, most in MOST_FILES.items():
        assert 0 < len(drawn(path)) <= most
        assert all((ROOT / file).exists() for file in drawn(path))


def test_every_file_and_class_that_the_page_names_exists() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "src" / "tacit").rglob("*.py"))
    for file in re.findall(r"`((?:policies|privacy|audit|experiments)/[\w/]+\.py)`", PAGE):
        assert (ROOT / "src" / "tacit" / file).exists(), file
    for file in re.findall(r"`(tests/[\w/]+\.py)`", PAGE):
        assert (ROOT / file).exists(), file
    for name in set(re.findall(r"`([A-Z]\w+)`", PAGE)) - {"NamedTuple"}:
        assert re.search(rf"\bclass {name}\b|^{name}\b", sources, flags=re.MULTILINE), name


def kernels() -> dict[str, list[tuple[str, ast.FunctionDef]]]:
    """Every kernel of the package by its name: its decorator, and its source."""
    found: dict[str, list[tuple[str, ast.FunctionDef]]] = {}
    for path in sorted((ROOT / "src" / "tacit").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    kind = ast.unparse(decorator).partition("(")[0]
                    if kind.endswith(("kernel", "entry")):
                        found.setdefault(node.name, []).append((kind, node))
    return found


def _hands_out_an_array(kernel: ast.FunctionDef) -> bool:
    return kernel.returns is not None and "Array" in ast.unparse(kernel.returns)


def _called_names(kernel: ast.FunctionDef) -> set[str]:
    calls = (node.func for node in ast.walk(kernel) if isinstance(node, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}


def test_only_kernels_that_count_references_get_arrays_from_others() -> None:
    """A kernel without reference counts that is handed an array never frees it.

    One that hands out an array gives Python the whole of which it should be a part.
    """
    everything = kernels()
    assert len(everything) > 50
    givers = {name for name, found in everything.items() if any(_hands_out_an_array(kernel) for _, kernel in found)}
    assert givers >= {"identity", "surviving_arms"}
    for name, found in everything.items():
        for kind, kernel in found:
            if kind.startswith("allocating"):
                continue
            assert not _hands_out_an_array(kernel), f"{name} hands out an array"
            assert not _called_names(kernel) & givers, f"{name} is handed an array"
