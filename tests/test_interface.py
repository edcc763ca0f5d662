"""The names that a user sees: typed, documented, light to import, and their examples run."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, assert_type

import pytest

import tacit
from tacit.errors import InvalidInput
from tacit.policies.registry import POLICIES

ROOT = Path(__file__).parents[1]
NAMES = [name for name in tacit.__all__ if name != "__version__"]
CALLS = ("select", "select_batch", "update", "abandon", "explain", "public_fingerprint")
METHODS: dict[type, tuple[str, ...]] = {
    tacit.Policy: (*CALLS, "play", "save", "snapshot", "from_snapshot", "keep_log", "replay", "fingerprint"),
    tacit.PrivatePolicy: ("public_fingerprint", "public_snapshot", "from_public_snapshot", "recover"),
    tacit.DurablePolicy: (*CALLS, "backup", "close"),
    tacit.Config: ("to_json", "from_json", "given"),
}
"""What a user calls on a policy, and on its configuration."""
DOCTESTS = """
import doctest, importlib, sys
for name in sys.argv[1:]:
    found = doctest.testmod(importlib.import_module(name))
    assert found.failed == 0 and found.attempted > 0, (name, found)
"""


def with_examples() -> list[str]:
    """Modules of the package whose docstrings have examples."""
    return module_names(path for path in (ROOT / "src").rglob("*.py") if ">>> " in path.read_text())


def module_names(files: Iterable[Path]) -> list[str]:
    """Names of the modules in these files."""
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


def exported() -> dict[str, Any]:
    """Every class and function that a module of the package lists in ``__all__``, by where it is defined."""
    files = [path for path in (ROOT / "src").rglob("*.py") if "\n__all__ = " in path.read_text()]
    modules = [importlib.import_module(name) for name in module_names(files)]
    values = [getattr(module, name) for module in modules for name in module.__all__]
    # Others are constants and aliases of types, whose documentation is a string below them.
    kept = [value for value in values if inspect.isclass(value) or inspect.isfunction(inspect.unwrap(value))]
    return {f"{value.__module__}.{value.__qualname__}": value for value in kept}


def required_sections(found: Any) -> set[str]:
    """The sections that a public class or function must have.

    An exception is raised for the caller and a protocol is only a type: both need none.  Abstract classes are not
    made at all and records of values seldom by callers, so that they need no example, unless they are on `tacit`.
    """
    if not inspect.isclass(found):
        return wanted_sections(found) | {"Examples"}
    if issubclass(found, BaseException) or Protocol in found.__bases__:
        return set()
    parameters = {"Parameters"} if inspect.signature(found).parameters else set()
    seldom_made = inspect.isabstract(found) or issubclass(found, tuple) or is_dataclass(found)
    excused = seldom_made and found.__name__ not in tacit.__all__
    return parameters if excused else parameters | {"Examples"}


EXPORTED = exported()


@pytest.mark.parametrize("name", sorted(EXPORTED))
def test_every_public_name_is_documented(name: str) -> None:
    found = EXPORTED[name]
    text = inspect.cleandoc(found.__doc__ or "")  # its own: `inspect.getdoc` falls back to that of a base
    assert text
    assert sections(text) >= required_sections(found)


def test_the_names_on_tacit_are_among_those_exported() -> None:
    assert {id(getattr(tacit, name)) for name in NAMES} <= {id(found) for found in EXPORTED.values()}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in METHODS.items() for name in names])
def test_methods_that_users_call_are_documented(kind: type, name: str) -> None:
    found = getattr(kind, name)
    assert sections(inspect.getdoc(found) or "") >= wanted_sections(found)


def test_documentation_without_sections_is_found() -> None:
    def bare(count: int) -> int:
        """Return a count."""
        return count

    assert wanted_sections(bare) == {"Parameters", "Returns"}
    assert sections(inspect.getdoc(bare) or "") == set()
    assert sections("Do it.\n\nParameters\n----------\nx : int") == {"Parameters"}
    assert required_sections(bare) == {"Parameters", "Returns", "Examples"}


def test_types_that_cannot_be_made_need_less() -> None:
    class Shape(Protocol):
        def area(self) -> float: ...

    class Base(ABC):
        def __init__(self, size: int) -> None:
            self.size = size

        @abstractmethod
        def area(self) -> float: ...

    class Square(Base):
        def area(self) -> float:
            return float(self.size**2)

    assert required_sections(Shape) == required_sections(InvalidInput) == set()
    assert required_sections(Base) == {"Parameters"}
    assert required_sections(Square) == {"Parameters", "Examples"}
    assert required_sections(tacit.Policy) == {"Parameters", "Examples"}


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
