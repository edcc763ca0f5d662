"""The names that a user sees on `tacit`: typed, documented, light to import, and their examples run."""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, assert_type

import pytest

import tacit
from tacit.errors import InvalidInput
from tacit.policies.registry import POLICIES

ROOT = Path(__file__).parents[1]
NAMES = [name for name in tacit.__all__ if name != "__version__"]
METHODS = ("select", "select_batch", "update", "abandon", "play", "explain", "save")
"""What a user calls on a policy."""
DOCTESTS = """
import doctest, importlib, sys
for name in sys.argv[1:]:
    found = doctest.testmod(importlib.import_module(name))
    assert found.failed == 0 and found.attempted > 0, (name, found)
"""


def with_examples() -> list[str]:
    """Modules of the package whose docstrings have examples."""
    files = [path for path in (ROOT / "src").rglob("*.py") if ">>> " in path.read_text()]
    return [".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__") for path in files]


def test_all_examples_run() -> None:
    """In a process of their own: some register policies, links and environments."""
    modules = [*with_examples(), *{tacit.policy_class(name).__module__ for name in POLICIES}]
    assert len(modules) > 20
    done = subprocess.run([sys.executable, "-c", DOCTESTS, *modules], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def sections(text: str) -> set[str]:
    return {title for title, rule in pairwise(text.splitlines()) if title and rule == "-" * len(title)}


def wanted_sections(found: Any) -> set[str]:
    """The sections that the docstring of a function or method must have."""
    signature = inspect.signature(found)
    parameters = [name for name in signature.parameters if name not in ("self", "cls")]
    returns = signature.return_annotation not in ("None", None)
    return {title for title, needed in (("Parameters", parameters), ("Returns", returns)) if needed}


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_documented(name: str) -> None:
    found = getattr(tacit, name)
    text = inspect.getdoc(found) or ""
    if name.endswith("Config"):
        assert "Parameters" in sections(text)
        return
    wanted = {"Parameters"} if isinstance(found, type) else wanted_sections(found)
    assert sections(text) >= wanted | {"Examples"}


@pytest.mark.parametrize("name", METHODS)
def test_methods_that_users_call_are_documented(name: str) -> None:
    found = getattr(tacit.Policy, name)
    assert sections(inspect.getdoc(found) or "") >= wanted_sections(found)


def test_documentation_without_sections_is_found() -> None:
    def bare(count: int) -> int:
        """Return a count."""
        return count

    assert wanted_sections(bare) == {"Parameters", "Returns"}
    assert sections(inspect.getdoc(bare) or "") == set()
    assert sections("Do it.\n\nParameters\n----------\nx : int") == {"Parameters"}


def test_policies_and_configurations_are_typed() -> None:
    policy = tacit.StreamGLM(tacit.StreamConfig(dim=2, epsilon=1.0, delta=1e-6, theta_bound=3.0))
    assert_type(policy, tacit.StreamGLM)
    assert_type(policy.config, tacit.StreamConfig)
    assert_type(policy.config.width, float)
    assert_type(policy.select([[1.0, 0.0], [0.0, 1.0]]), tacit.Decision)
    with pytest.raises(InvalidInput):
        tacit.StreamConfig(dim="2", epsilon=1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="epsilonn"):
        tacit.StreamConfig(dim=2, epsilonn=1.0)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", list(POLICIES))
def test_every_policy_and_its_configuration_is_at_hand(name: str) -> None:
    kind = tacit.policy_class(name)
    assert {kind.__name__, kind.config_type.__name__} <= set(tacit.__all__)
    assert getattr(tacit, kind.__name__) is kind
    assert getattr(tacit, kind.config_type.__name__) is kind.config_type


def test_types_names_and_homes_agree() -> None:
    tree = ast.parse((ROOT / "src" / "tacit" / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    typed = {node.module: tuple(alias.name for alias in node.names) for node in imports}
    assert typed == tacit._HOMES
    assert sorted(name for names in typed.values() for name in names) == sorted(NAMES)
    assert set(NAMES) <= set(dir(tacit))


def test_nothing_that_is_star_imported_shadows_a_builtin() -> None:
    assert not set(NAMES) & set(dir(builtins))
    assert tacit.open is tacit.open_policy


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'StreamGlm'"):
        tacit.StreamGlm  # noqa: B018


def test_import_tacit_is_light() -> None:
    command = "import sys, tacit; print(*(name for name in sys.modules if name.startswith(('numpy', 'tacit.'))))"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["tacit._version"]
