"""Rules of the house that a reader feels and no other tool checks (docs/architecture.md, "Rules that tests keep")."""

from __future__ import annotations

import ast
import importlib
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "tacit"
MODULES = sorted(SOURCE.rglob("*.py"))
MOST_PARAMETERS = 8
SHORTEST_REPEAT = 8
LEANING = ("The same", "As ", "Of ", "Those", "That of", "That many", "Its ", "Their ", "Then ")
"""Beginnings of sentences that another sentence must have gone before."""
CONFIGURATION = {("policies/registry.py", "make_policy")}
"""Functions that take a configuration field by field, so that editors complete it."""


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for path in MODULES:
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text())


def _parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def _is_command(module: str, function: ast.FunctionDef) -> bool:
    """Whether the parameters are options of the command line."""
    return module.startswith("cli/") and "typer.Option" in ast.unparse(function.args)


def crowded(module: str, tree: ast.Module) -> list[str]:
    """Functions with more parameters than anybody can keep apart."""
    return [
        f"{module}:{node.lineno} {node.name} has {len(_parameters(node))} parameters"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and len(_parameters(node)) > MOST_PARAMETERS
        and not _is_command(module, node)
        and (module, node.name) not in CONFIGURATION
    ]


def _belongs_to_a_state(node: ast.expr) -> bool:
    """``state.x``, ``state.x.y``, ``policy.state.x``, ``side.x``, ``stream.x``; not a name alone, nor a shape."""
    if isinstance(node, ast.Attribute) and node.attr == "shape":
        return False
    while isinstance(node, ast.Attribute):
        node = node.value
        if isinstance(node, ast.Attribute) and node.attr == "state":
            return True
        if isinstance(node, ast.Name):
            return node.id in ("state", "stream", "rows", "side", "explore", "exploit", "batch", "constants")
    return False


def _has_number(index: ast.expr) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(isinstance(part, ast.Constant) and type(part.value) is int for part in parts) or any(
        isinstance(part, ast.UnaryOp) and isinstance(part.operand, ast.Constant) for part in parts
    )


def numbered(module: str, tree: ast.Module) -> list[str]:
    """Places that look up a part of a state by a number, outside of loops."""
    inside = {
        id(child)
        for loop in ast.walk(tree)
        if isinstance(loop, ast.For | ast.While)
        for child in ast.walk(loop)
        if child is not loop
    }
    return [
        f"{module}:{node.lineno} {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and id(node) not in inside
        and _has_number(node.slice)
        and _belongs_to_a_state(node.value)
    ]


def unsure(module: str, tree: ast.Module) -> list[str]:
    """Assertions that something is there, which a type could say."""
    return [
        f"{module}:{node.lineno} {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) and ast.unparse(node.test).endswith("is not None")
    ]


def shapes(text: str) -> list[tuple[int, str]]:
    """Number and shape of every line of code: names, numbers and strings aside.

    Left out are lines without logic of their own: comments, docstrings, imports, declarations, keyword arguments,
    entries of tables and closing brackets.
    """
    lines: dict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            word = token.string in ("if", "else", "for", "while", "return", "in", "not", "and", "or", "def", "class")
            lines[token.start[0]].append(token.string if word or token.string in ("import", "from") else "N")
        elif token.type in (tokenize.NUMBER, tokenize.STRING):
            lines[token.start[0]].append("V")
        elif token.type == tokenize.OP:
            lines[token.start[0]].append(token.string)
    joined = [(number, " ".join(parts)) for number, parts in sorted(lines.items())]
    return [(number, shape) for number, shape in joined if not _is_thin(shape)]


def _is_thin(shape: str) -> bool:
    words = shape.split()
    if words[0] in ("import", "from", "@", "class") or words == ["V"] or "N" not in words:
        return True
    declared = len(words) > 1 and words[:2] == ["N", ":"] and "(" not in words
    keyword = words[-1] in (",", "(") and words[:2] in (["N", "="], ["V", ":"])
    listed = words[-1] == "," and "=" not in words and len(words) <= 4
    return declared or keyword or listed


def repeats(texts: dict[str, str]) -> list[str]:
    """Runs of lines of the same shape that stand in two places."""
    seen: dict[tuple[str, ...], tuple[str, int]] = {}
    found = []
    for module, text in texts.items():
        lines = shapes(text)
        for start in range(len(lines) - SHORTEST_REPEAT + 1):
            window = tuple(shape for _, shape in lines[start : start + SHORTEST_REPEAT])
            where = module, lines[start][0]
            first = seen.setdefault(window, where)
            if first[0] != module or lines[start][0] > first[1] + SHORTEST_REPEAT:
                found.append(f"{module}:{where[1]} repeats {first[0]}:{first[1]}")
    return found


def leaning(module: str, tree: ast.Module) -> list[str]:
    """Docstrings, of attributes and options too, that begin as if the reader had just read another one."""
    told = [node for node in map(_told, ast.walk(tree)) if node is not None]
    return [
        f"{module}:{node.lineno} {str(node.value).strip().splitlines()[0]}"
        for node in told
        if isinstance(node.value, str) and node.value.lstrip().startswith(LEANING)
    ]


def _told(node: ast.AST) -> ast.Constant | None:
    """The text by which this documents something: a string that stands alone, or the first argument of an option."""
    told: ast.expr | None = None
    if isinstance(node, ast.Expr):
        told = node.value
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("option", "scale_option"):
        told = [*node.args, *(word.value for word in node.keywords if word.arg == "about")][0]
    return told if isinstance(told, ast.Constant) else None


def ambiguous(trees: Iterable[tuple[str, ast.Module]]) -> list[str]:
    """Names that two classes have."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module, tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(f"{module}:{node.lineno}")
    return [f"{name}: {', '.join(places)}" for name, places in homes.items() if len(places) > 1]


def _has_all(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__" for node in tree.body)


def test_no_function_has_more_parameters_than_anybody_can_keep_apart() -> None:
    assert [found for module, tree in _trees() for found in crowded(module, tree)] == []


def test_nothing_looks_up_a_state_by_number() -> None:
    assert [found for module, tree in _trees() for found in numbered(module, tree)] == []


def test_types_say_what_is_there() -> None:
    found = [found for module, tree in _trees() if module.startswith("policies/") for found in unsure(module, tree)]
    assert found == []


def test_nothing_stands_twice() -> None:
    assert repeats({path.relative_to(SOURCE).as_posix(): path.read_text() for path in MODULES}) == []


def test_every_docstring_stands_alone() -> None:
    found = [found for module, tree in _trees() for found in leaning(module, tree)]
    assert found == []


def test_no_class_name_occurs_twice() -> None:
    assert ambiguous(_trees()) == []


def test_a_public_name_means_one_thing() -> None:
    """Names that several modules export are one object, imported from one place."""
    exported: dict[str, set[int]] = defaultdict(set)
    for module in (module for module, tree in _trees() if _has_all(tree)):
        path = ["tacit", *module.removesuffix(".py").removesuffix("__init__").strip("/").split("/")]
        exporting = importlib.import_module(".".join(filter(None, path)))
        for name in exporting.__all__:
            exported[name].add(id(getattr(exporting, name)))
    assert len(exported) > 100
    assert [name for name, objects in exported.items() if len(objects) > 1] == []


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("def f(a, b, c, d, e, *, g, h, i, j): ...", crowded),
        ("x = state.constants[4]", numbered),
        ("x = self.state.counts[0, 1]", numbered),
        ("x = stream.scale[-1]", numbered),
        ("assert self.ledger is not None", unsure),
        ('def f():\n    """The same, for many."""', leaning),
        ('class A:\n    x = 1\n    """As the base has it."""', leaning),
        ('x = 1\n"""Of the other matrix."""', leaning),
        ('class A:\n    x = option("The same for " "y.", default=1)', leaning),
        ('class A:\n    x = option(default=1, about="Those of y.")', leaning),
    ],
)
def test_the_rules_find_what_they_are_for(code: str, rule: object) -> None:
    assert callable(rule)
    assert rule("policies/some.py", ast.parse(code))


def test_a_class_name_in_two_modules_is_found() -> None:
    assert ambiguous([("a.py", ast.parse("class A: ...")), ("b.py", ast.parse("class A: ...\nclass B: ..."))]) == [
        "A: a.py:1, b.py:1"
    ]


def test_a_number_within_a_loop_and_a_number_of_its_own_are_fine() -> None:
    code = "for i in range(3):\n    x = state.theta[0] + i\ny = state.ticks[()]\nz = state.theta[i]"
    assert numbered("some.py", ast.parse(code)) == []


def imports_of(room: str, tree: ast.Module) -> list[int]:
    """Lines that import a package or a module of it, or name such a module in a string."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [node.lineno for alias in node.names if alias.name.partition(".")[0] == room]
        elif isinstance(node, ast.ImportFrom):
            found += [node.lineno] * (str(node.module).partition(".")[0] == room)
        elif isinstance(node, ast.Constant):
            found += [node.lineno] * bool(re.fullmatch(rf"{room}(\.\w+)+", str(node.value)))
    return found


def test_rooms_import_one_way() -> None:
    """Benchmarks may use what tests use, never the other way: what both need is in workloads/."""
    root = SOURCE.parents[1]
    for room, others in (("tests", ["benchmarks"]), ("workloads", ["benchmarks", "tests"])):
        for path in (root / room).rglob("*.py"):
            tree = ast.parse(path.read_text())
            found = [line for other in others for line in imports_of(other, tree) if path != Path(__file__)]
            assert found == [], f"{path.relative_to(root)}: lines {found}"


@pytest.mark.parametrize(
    "code",
    ["import benchmarks.soak", "from benchmarks import soak", "from benchmarks.soak import x", "f('benchmarks.soak')"],
)
def test_imports_of_another_room_are_found(code: str) -> None:
    assert imports_of("benchmarks", ast.parse(code)) == [1]


def test_code_that_stands_twice_is_found_whatever_its_names() -> None:
    body = "".join(f"    {name}{i} = {name}(x[{i}]) + {i}\n" for i in range(9) for name in "a")
    assert repeats({"one.py": f"def one(x):\n{body}", "two.py": f"def two(y):\n{body.replace('a', 'b')}"})
    assert not repeats({"one.py": f"def one(x):\n{body}"})
