"""Modules of a researcher's own: every process runs the same code, and edits are noticed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.experiments.test_runner import experiment, timeless
from tests.test_docs import BLOCK
from typer.testing import CliRunner

from tacit import extensions
from tacit.cli.app import app
from tacit.environments import registry
from tacit.errors import InvalidInput
from tacit.experiments.results import RunJournal
from tacit.experiments.runner import run_all
from tacit.extensions import load_again, load_modules

MODULE = """
import numpy as np
from tacit.environments import register_environment


@register_environment("two-armed")
def two_armed(rng, setting):
    '''One arm is better by the same gap in every round.'''
    while True:
        yield np.full((64, 2, setting.dim), 0.1), np.tile([0.5, 0.5 - GAP], (64, 1))
"""
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray")
Writer = Callable[[float], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    """Writes the module ``own_worlds`` into the current directory; the process is left as it was found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    kinds = dict(registry._KINDS)
    for name in [name for name, kind in kinds.items() if kind.generate.__module__ != "tacit.environments.synthetic"]:
        del registry._KINDS[name]  # of other tests

    def write(gap: float) -> Path:
        path = tmp_path / "own_worlds.py"
        path.write_text(MODULE.replace("GAP", repr(gap)))
        return path

    yield write
    registry._KINDS.clear()
    registry._KINDS.update(kinds)
    forget(*(name for name in list(sys.modules) if name.startswith("own_")))


def forget(*names: str) -> None:
    """As if this were a new process."""
    for name in names:
        sys.modules.pop(name, None)
        extensions._IMPORTS.pop(name, None)


OWN = experiment(contexts="two-armed", arms=2, modules=("own_worlds",))


def test_own_environments_run_in_all_processes(write: Writer) -> None:
    write(0.25)
    alone = run_all([OWN], runs=4, seed=0, jobs=1)
    together = run_all([OWN], runs=4, seed=0, jobs=2)
    assert timeless(alone) == timeless(together)
    assert alone[0]["modules"] == ["own_worlds"]
    for regret in alone[0]["regrets"]:  # random loses the gap in about half of 120 rounds
        assert regret == pytest.approx(0.25 * 60, abs=0.25 * 25)


@needs_ray
@pytest.mark.filterwarnings("ignore")
def test_own_environments_run_on_ray(write: Writer) -> None:
    write(0.25)
    there = run_all([OWN], runs=2, seed=0, jobs=2, engine="ray")
    assert timeless(run_all([OWN], runs=2, seed=0, jobs=1)) == timeless(there)


def test_an_edit_reaches_workers_that_are_still_there(write: Writer) -> None:
    write(0.25)
    before = run_all([OWN], runs=2, seed=0, jobs=2)
    write(0.125)
    # This process imported the old one; a worker that had no task before would refuse the new one.
    assert timeless(run_all([OWN], runs=2, seed=0, jobs=1)) == timeless(before)
    forget("own_worlds")
    after = run_all([OWN], runs=2, seed=0, jobs=2)
    assert after[0]["regrets"] == [0.5 * regret for regret in before[0]["regrets"]]


def test_a_journal_does_not_find_runs_of_an_edited_module(write: Writer, tmp_path: Path) -> None:
    journal, text = tmp_path / "journal.jsonl", write(0.25).read_text()
    run_all([OWN], runs=1, seed=0, journal=journal)
    assert RunJournal(journal).find(OWN, 0, 0) is not None
    forget("own_worlds")
    write(0.125)
    assert RunJournal(journal).find(OWN, 0, 0) is None
    forget("own_worlds")
    (tmp_path / "own_worlds.py").write_text(text)
    assert RunJournal(journal).find(OWN, 0, 0) is not None


def test_a_file_is_imported_by_its_path(write: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(0.25)
    expected = run_all([OWN], runs=2, seed=0)
    forget("own_worlds")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = path.rename(elsewhere / path.name)
    monkeypatch.chdir(tmp_path)
    (loaded,) = load_modules(["elsewhere/own_worlds.py"])
    assert loaded == load_modules(["own_worlds"])[0] == load_modules([str(moved)])[0]
    assert Path(loaded.folder) == elsewhere
    assert timeless(run_all([OWN], runs=2, seed=0, jobs=2)) == timeless(expected)


def test_files_that_cannot_be_imported_by_their_path_are_refused(write: Writer, tmp_path: Path) -> None:
    load_modules([write(0.25).stem])
    twin, unnamed = tmp_path / "twin" / "own_worlds.py", tmp_path / "own-worlds.py"
    twin.parent.mkdir()
    for path in (twin, unnamed):
        path.write_text("")
    with pytest.raises(InvalidInput, match="'own-worlds' cannot be the name of a module; rename the file"):
        load_modules([str(unnamed)])
    with pytest.raises(InvalidInput, match=r"'own_worlds' is a module of .* already; rename the file"):
        load_modules([str(twin)])


def test_a_reload_counts_as_a_new_version(write: Writer) -> None:
    write(0.25)
    (first,) = load_modules(["own_worlds"])
    write(0.125)
    assert load_modules(["own_worlds"]) == (first,)  # what is in memory is what runs
    importlib.reload(sys.modules["own_worlds"])
    (second,) = load_modules(["own_worlds"])
    assert second.digest != first.digest


def test_a_worker_refuses_what_its_parent_did_not_have(write: Writer) -> None:
    write(0.25)
    (sent,) = load_modules(["own_worlds"])
    forget("own_worlds")
    write(0.125)
    with pytest.raises(InvalidInput, match="'own_worlds' was edited while it was in use"):
        load_again([sent])


def test_every_file_of_a_package_counts(tmp_path: Path, write: Writer) -> None:
    (tmp_path / "own_package" / "deep").mkdir(parents=True)
    for name in ("__init__.py", "deep/__init__.py", "deep/worlds.py"):
        (tmp_path / "own_package" / name).write_text("VALUE = 1\n")
    package, module = load_modules(["own_package", "own_package.deep.worlds"])
    assert package.folder == module.folder == str(tmp_path)
    forget(*(name for name in list(sys.modules) if name.startswith("own_package")))
    (tmp_path / "own_package" / "deep" / "__init__.py").write_text("VALUE = 2\n")
    changed, same = load_modules(["own_package", "own_package.deep.worlds"])
    assert changed.digest != package.digest
    assert same.digest == module.digest


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("missing_worlds", None, "'missing_worlds': ModuleNotFoundError: No module named 'missing_worlds'"),
        ("own_worlds", "import no_such_thing", "'own_worlds': ModuleNotFoundError: No module named 'no_such_thing'"),
        ("own_worlds", "1 / 0", "'own_worlds': ZeroDivisionError: division by zero"),
        ("own_worlds", "def", "'own_worlds': SyntaxError"),
        ("own_worlds.py", "1 / 0", "'own_worlds': ZeroDivisionError: division by zero"),
        ("own-worlds.py", "", r"no file own-worlds\.py"),
        ("sys", None, "'sys' has no source file"),
    ],
)
def test_a_module_that_cannot_be_used_is_named(
    name: str, text: str | None, told: str, write: Writer, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "own_worlds.py").write_text(text)
    with pytest.raises(InvalidInput, match=told):
        load_modules([name])


def tacit(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def test_the_command_line_takes_modules(write: Writer) -> None:
    write(0.25)
    small = ["--horizon", "120", "--runs", "2", "--jobs", "2", "--json", "-"]
    own = ["--module", "own_worlds", "--contexts", "two-armed", *small]
    (row,) = json.loads(tacit("simulate", "--policy", "random", "--dim", "3", "--arms", "2", *own))
    assert (row["contexts"], row["modules"]) == ("two-armed", ["own_worlds"])
    assert row["regret_mean"] == pytest.approx(15.0, abs=6.0)
    (row,) = json.loads(tacit("bench", "regret", "--policies", "random", "--links", "probit", "--dims", "3", *own))
    assert row["contexts"] == "two-armed"
    assert "random" in tacit("policies", "--module", "own_worlds", "--json", "-")


def test_without_the_module_a_kind_is_unknown(write: Writer) -> None:
    write(0.25)
    for command in (["simulate"], ["bench", "regret"]):
        assert "unknown: two-armed; choose from ball" in tacit(*command, "--contexts", "two-armed", code=2)
    assert "cannot import the module 'own_world'" in tacit("policies", "--module", "own_world", code=2)


def test_a_module_may_be_the_program_itself(write: Writer) -> None:
    """A script that runs experiments with its own environment is imported under its name by every worker."""
    path = write(0.25)
    spec = importlib.util.spec_from_file_location("__own_main__", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert run_all([OWN], runs=1, seed=0)[0]["runs"] == 1


def test_the_guides_module_runs_by_the_guides_command(write: Writer, tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "experiments.md").read_text()
    (text,) = (block for block in BLOCK.findall(guide) if block.startswith("# my_worlds.py\n"))
    (tmp_path / "own_seasons.py").write_text(text)
    (command,) = re.findall(r"^\$ tacit (simulate --module my_worlds .*)$", guide, re.MULTILINE)
    arguments = command.replace("my_worlds", "own_seasons").split()
    rows = json.loads(tacit(*arguments, "--horizon", "200", "--jobs", "2", "--json", "-"))
    assert [(row["policy"], row["contexts"], row["runs"]) for row in rows] == [
        ("stream-glm", "seasons", 4),
        ("random", "seasons", 4),
    ]
    assert (tmp_path / "seasons.png").exists()
