"""What is installed without extras and with one of them: what works there, and what the error names where it does not.

Nothing is installed for this: a process of its own is kept from importing what the extras at hand would not bring.
"""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tacit._version import __version__
from tacit.extras import DISTRIBUTION, EXTRA_OF

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
WITHOUT = """
import sys
from importlib.machinery import PathFinder

class Present(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in absent else super().find_spec(name, path, target)

absent = set(sys.argv.pop(1).split(","))
sys.meta_path[sys.meta_path.index(PathFinder)] = Present
"""
COMMAND = "import runpy; runpy.run_module('tacit', run_name='__main__', alter_sys=True)"
LIBRARY = """
import tempfile, numpy as np, tacit
from tacit.features import Category, Schema

arguments = {"dim": 2, "epsilon": 1.0, "delta": 1e-6}
policy = tacit.make_policy("stream-glm", **arguments)
policy.update(policy.select(np.eye(2)), 1.0)
folder = tempfile.mkdtemp()
policy.save(f"{folder}/state")
assert tacit.load(f"{folder}/state").privacy.target_epsilon == 1.0
with tacit.open_policy(f"{folder}/store", "stream-glm", **arguments) as durable:
    durable.select(np.eye(2))
schema = Schema(user=[Category("device", ["ios", "web"])], arm=[Category("message", ["a", "b"])])
print(schema.describe())
"""


def brought_by(*extras: str) -> set[str]:
    """Distributions that the core and these extras install, what they need themselves included."""
    waiting = [Requirement(text) for text in PROJECT["dependencies"]]
    waiting += [Requirement(text) for extra in extras for text in EXTRAS[extra]]
    found: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        key = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if key in found:
            continue
        found.add(key)
        if key[0] == DISTRIBUTION:
            waiting += [Requirement(text) for extra in requirement.extras for text in EXTRAS[extra]]
            continue
        waiting += _needed(*key)
    return {name for name, _ in found}


def _needed(name: str, extras: frozenset[str]) -> list[Requirement]:
    try:
        texts = requires(name) or []
    except PackageNotFoundError:
        return []  # for another system
    needed = [Requirement(text) for text in texts]
    return [
        each
        for each in needed
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in (*extras, ""))
    ]


def environment(*extras: str, code: str) -> list[str]:
    """The beginning of a command that runs ``code`` where the core and these extras are all that is installed."""
    brought = brought_by(*extras)
    absent = [
        module
        for module, owners in packages_distributions().items()
        if module != "tacit" and not brought & {canonicalize_name(owner) for owner in owners}
    ]
    return [sys.executable, "-c", WITHOUT + code, ",".join(absent)]


def variables() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def ran(*arguments: str, extras: tuple[str, ...] = (), code: str = COMMAND) -> subprocess.CompletedProcess[str]:
    command = [*environment(*extras, code=code), *arguments]
    return subprocess.run(command, env=variables(), capture_output=True, text=True, check=False, timeout=300)


def refusal(*arguments: str, extras: tuple[str, ...] = ()) -> str:
    """What a command says that is refused with exit code 2 and without a traceback."""
    done = ran(*arguments, extras=extras)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


def test_the_core_alone_decides_keeps_and_encodes() -> None:
    done = ran(code=LIBRARY)
    assert done.returncode == 0, done.stderr
    assert "device" in done.stdout


@pytest.mark.parametrize("arguments", [(), ("--help",), ("serve",)])
def test_without_a_command_line_one_sentence_says_what_to_install(arguments: tuple[str, ...]) -> None:
    said = refusal(*arguments)
    assert said.count("\n") == 1
    assert "pip install 'tacit-bandits[lab]'" in said
    assert "pip install 'tacit-bandits[serve]' for the service alone (typer is missing)" in said


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("import tacit.client", "client"),
        ("import tacit.testing.services", "serve"),
        ("import tacit.experiments.plots", "lab"),
        ("from tacit.experiments.engines import Joblib; list(Joblib(2).finished(abs, [(1,), (2,)]))", "lab"),
        ("from tacit.experiments.engines import Ray; list(Ray(2).finished(abs, [(1,), (2,)]))", "ray"),
    ],
)
def test_functions_name_the_extra_that_they_lack(code: str, extra: str) -> None:
    done = ran(code=code)
    assert f"MissingExtra: this needs further packages: pip install 'tacit-bandits[{extra}]'" in done.stderr


def test_the_client_alone_can_be_imported() -> None:
    assert ran(extras=("client",), code="from tacit.client import AsyncClient, Client").returncode == 0


@pytest.mark.slow
def test_with_serve_alone_it_serves_and_keeps_keys(tmp_path: Path) -> None:
    where = ("--data", str(tmp_path / "store"))
    command = [*environment("serve", code=COMMAND), "serve", "--port", "0", *where]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, env=variables(), **streams) as life:
        try:
            assert life.stdout is not None
            assert "listening on http://" in life.stdout.readline()
            assert "admin" in ran("keys", "list", *where, extras=("serve",)).stdout
        finally:
            life.send_signal(signal.SIGTERM)
    assert life.returncode == 0
    assert ran("keys", "add", "shop", *where, extras=("serve",)).stdout.startswith("tacit")
    for lacking in (("simulate", "--jobs", "2"), ("simulate", "--plot", str(tmp_path / "x.png")), ("demo",)):
        assert "pip install 'tacit-bandits[lab]'" in refusal(*lacking, extras=("serve",))


@pytest.mark.slow
def test_with_lab_alone_it_simulates_and_plots_and_names_what_others_need(tmp_path: Path) -> None:
    small = ("--policy", "random", "--dim", "2", "--arms", "2", "--horizon", "60", "--runs", "2", "--jobs", "1")
    played = ran("simulate", *small, "--plot", str(tmp_path / "x.png"), extras=("lab",))
    assert played.returncode == 0, played.stderr
    assert (tmp_path / "x.png").stat().st_size > 1_000
    for lacking in (("serve",), ("audit", "service")):
        assert "pip install 'tacit-bandits[serve]'" in refusal(*lacking, extras=("lab",))
    assert "tacit-bandits[ray]" in refusal("simulate", *small[:-1], "2", "--engine", "ray", extras=("lab",))
    database = ("keys", "list", "--database", "postgresql://x@127.0.0.1:1/x")
    assert "tacit-bandits[postgres]" in refusal(*database, extras=("serve",))


def imported() -> set[str]:
    """Modules outside of the standard library and of the package that the package imports."""
    trees = [ast.parse(path.read_text()) for path in (ROOT / "src").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"tacit"}


def test_every_import_belongs_to_the_core_or_to_a_known_extra() -> None:
    owners = packages_distributions()
    core = brought_by()
    for module in imported():
        owner = {canonicalize_name(name) for name in owners[module]}
        assert owner & core or module in EXTRA_OF, f"{module} is neither in the core nor in tacit.extras"


def test_the_table_of_extras_is_that_of_the_project() -> None:
    owners = packages_distributions()
    for module, extra in EXTRA_OF.items():
        named = {canonicalize_name(Requirement(text).name) for text in EXTRAS[extra]}
        assert named & {canonicalize_name(name) for name in owners.get(module, [module])}, (module, extra)
    texts = {text for name, texts in EXTRAS.items() if name not in ("all", "shuffle") for text in texts}
    wanted = {canonicalize_name(Requirement(text).name) for text in texts} - {DISTRIBUTION}
    found = {canonicalize_name(name) for module in EXTRA_OF for name in owners.get(module, [module])}
    assert wanted <= found, "tacit.extras does not know all packages of the extras"
    (everything,) = map(Requirement, EXTRAS["all"])
    assert everything.extras == set(EXTRAS) - {"all"}


def test_the_version_stands_in_one_place() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
    released = re.findall(r"^## (\d\S*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert __version__ == released[0] or __version__ > released[0], json.dumps([__version__, *released])


def test_what_runs_is_locked_with_hashes() -> None:
    locked = (ROOT / "requirements" / "run.txt").read_text()
    for text in [*PROJECT["dependencies"], *EXTRAS["lab"]]:
        name = canonicalize_name(Requirement(text).name)
        assert re.search(rf"^{name}==.*\\\n    --hash=sha256:", locked, re.MULTILINE), name
