"""What kernels may use: only what gives the same bits interpreted, compiled, and on every machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "tacit"
NUMPY = {"empty", "empty_like", "zeros", "ones", "arange", "flatnonzero", "count_nonzero"}
"""Makes arrays, or looks at integers and flags."""
NUMPY |= {"max", "rint", "floor"}
"""Without rounding."""
NUMPY |= {"hypot"}
"""The C library's function in both forms, where ``math.hypot`` of Python is an algorithm of its own."""
NUMPY |= {"int64", "uint64", "intp", "bool_", "ndarray", "dtype", "inf"}
"""Types and constants."""
METHODS = {"copy", "reshape"}
"""Of arrays, without arithmetic: sums and products would be those of numpy, which adds in pairs, or of BLAS."""


def kernels(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Functions that carry one of the decorators of `tacit._compile`, or are handed to those that do."""
    handed = {
        name.id
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "_by_mechanism"
        for name in call.args
        if isinstance(name, ast.Name)
    }
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
            if function.name in handed or any(
                decorator.partition("(")[0].endswith(("kernel", "entry")) for decorator in decorators
            ):
                yield function


def faults(function: ast.FunctionDef) -> Iterator[str]:
    """What a kernel does that may round differently in its two forms."""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "np" and node.attr not in NUMPY:
                yield f"np.{node.attr}"
            if node.value.id == "math" and node.attr == "hypot":
                yield "math.hypot"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            if owner not in ("np", "math") and node.func.attr not in METHODS:
                yield f".{node.func.attr}()"
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
            yield "@"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant):
            yield f"** {ast.unparse(node.right)}"  # a product when compiled, pow() when not
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "sum":
            yield "sum()"  # compensated from Python 3.12 on


def found_in(text: str) -> list[str]:
    return [f"{function.name}: {fault}" for function in kernels(ast.parse(text)) for fault in faults(function)]


def test_kernels_use_nothing_that_rounds_differently_when_compiled() -> None:
    found = {str(path): faulty for path in PACKAGE.rglob("*.py") if (faulty := found_in(path.read_text()))}
    assert found == {}


def test_nothing_is_compiled_with_other_arithmetic() -> None:
    options = [
        f"{path}: {node.arg}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.keyword) and node.arg in ("fastmath", "parallel")
    ]
    assert options == []


@pytest.mark.parametrize(
    "line", ["np.dot(x, y)", "np.exp(x)", "math.hypot(x, y)", "x @ y", "x ** 2", "x.sum()", "sum(x)"]
)
def test_what_rounds_differently_is_found(line: str) -> None:
    assert found_in(f"@kernel\ndef step(x, y):\n    return {line}\n") != []
    assert found_in(f"def plain(x, y):\n    return {line}\n") == []
