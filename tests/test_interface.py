"""The names that a user sees: typed, documented, light to import, and their examples run."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
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
ON_A_POLICY = """
    abandon arm_form belief config config_type decisions estimate explain fingerprint from_public_snapshot from_snapshot
    guarantee keep_log ledger links name play privacy private public_fingerprint public_snapshot publisher randomness
    recover replay save select select_admitted select_batch setting snapshot state update
"""
"""All public names of a private policy: those that users call, what it is, and seams for hosts and authors."""
ON_A_SHUFFLED_ONE = "batch_users bytes_per_user plan reports_per_user"
SEAMS = ("arm_form", "select_admitted", "publisher", "randomness", "state", "belief")
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
    """The sections that the docstring of a function or method must have.

    A verb of a client is a generator, a ``Conversation``, of which the caller sees the result alone.
    """
    signature = inspect.signature(found)
    parameters = [name for name in signature.parameters if name not in ("self", "cls")]
    result = str(signature.return_annotation)
    yields = inspect.isgeneratorfunction(found) and not result.startswith("Conversation[")
    returns = result not in ("None", "Conversation[None]")
    return {
        title
        for title, needed in (("Parameters", parameters), ("Yields", yields), ("Returns", returns and not yields))
        if needed
    }


def exported() -> dict[str, Any]:
    """Every class and function that a module of the package lists in ``__all__``, by where it is defined."""
    files = [path for path in (ROOT / "src").rglob("*.py") if "\n__all__ = " in path.read_text()]
    modules = [importlib.import_module(name) for name in module_names(files)]
    values = [getattr(module, name) for module in modules for name in module.__all__]
    # Others are constants and aliases of types, whose documentation is a string below them.
    kept = [value for value in values if inspect.isclass(value) or inspect.isfunction(inspect.unwrap(value))]
    return {f"{value.__module__}.{value.__qualname__}": value for value in kept}


def public_methods(kind: type) -> dict[str, Any]:
    """The methods that a class or a base of it defines in the package, by name; properties and inner classes aside."""
    names = [name for name in dir(kind) if not name.startswith("_")]
    found = {name: getattr(kind, name) for name in names if inspect.isroutine(getattr(kind, name))}
    return {
        name: method for name, method in found.items() if str(getattr(method, "__module__", "")).startswith("tacit")
    }


def undocumented(kind: type) -> list[str]:
    """Public methods that `help` does not tell all about: it shows the docstring of a base where a method has none."""
    methods = public_methods(kind).items()
    return [name for name, method in methods if not sections(inspect.getdoc(method) or "") >= wanted_sections(method)]


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


@pytest.mark.parametrize("name", sorted(name for name, found in EXPORTED.items() if inspect.isclass(found)))
def test_every_public_method_is_documented(name: str) -> None:
    assert undocumented(EXPORTED[name]) == []


def test_methods_that_users_call_are_among_those_looked_at() -> None:
    assert {"select", "update", "play", "from_snapshot"} <= set(public_methods(tacit.Policy))
    assert {"backup", "close", "select_batch"} <= set(public_methods(tacit.DurablePolicy))
    assert {"to_json", "from_json", "given"} <= set(public_methods(tacit.Config))
    assert "count" not in public_methods(tacit.Decision)  # of every tuple
    assert sum(len(public_methods(found)) for found in EXPORTED.values() if inspect.isclass(found)) > 500


@pytest.mark.parametrize(("name", "more"), [("stream-glm", ""), ("joint-glm", ""), ("shuffle-glm", ON_A_SHUFFLED_ONE)])
def test_a_policy_has_these_public_names_and_no_others(name: str, more: str) -> None:
    policy = tacit.make_policy(name, dim=2, horizon=5_000, epsilon=1.0, delta=1e-6, seed=1)
    assert [each for each in dir(policy) if not each.startswith("_")] == sorted((ON_A_POLICY + more).split())


def test_what_is_for_hosts_and_authors_is_told_apart() -> None:
    text = (tacit.Policy.__doc__ or "").partition("for hosts of a policy and for authors alone")[2].partition("\n\n")[0]
    assert set(SEAMS) <= set(text.replace("`", " ").split())


def test_documentation_without_sections_is_found() -> None:
    def bare(count: int) -> int:
        """Return a count."""
        return count

    assert wanted_sections(bare) == {"Parameters", "Returns"}
    assert sections(inspect.getdoc(bare) or "") == set()
    assert sections("Do it.\n\nParameters\n----------\nx : int") == {"Parameters"}
    assert required_sections(bare) == {"Parameters", "Returns", "Examples"}


def test_methods_without_sections_are_found() -> None:
    class Bare:
        def size(self) -> int:
            """Return a count."""
            return 1

        def grow(self) -> None:
            """Needs nothing."""

        @classmethod
        def of(cls, size: int) -> None:
            """Take a size."""

    class Heir(Bare):
        def of(self) -> None:  # type: ignore[override]
            pass

    for method in (Bare.size, Bare.grow, vars(Bare)["of"].__func__, Heir.of):
        method.__module__ = "tacit.some"
    assert undocumented(Bare) == ["of", "size"]
    assert undocumented(Heir) == ["size"]


def test_what_yields_says_so() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    assert wanted_sections(numbers) == {"Yields"}


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
