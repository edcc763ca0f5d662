"""What is said of arguments without numba is what numba says, and forms of kernels are kept apart."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from tacit._compile import entry, fingerprints, machine
from tacit._compile.cache import KernelCache
from tacit._compile.entries import as_entry, collect, is_ours
from tacit._compile.kernels import Kernel, known
from tacit._compile.kinds import from_json, kind_of
from tacit.linalg import solve
from tacit.policies.registry import POLICIES, make_policy, policy_class

ARRAY = np.zeros((3, 4))


def frozen(values: Any) -> Any:
    values = values.copy()
    values.flags.writeable = False
    return values


class Own(NamedTuple):
    values: Any


VALUES = [
    True, np.True_, 3, np.int64(3), 2.5, np.float64(2.5), ARRAY, ARRAY.T, ARRAY[:, 1], ARRAY[1], ARRAY[::2, ::2],
    frozen(ARRAY), np.zeros(()), np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.uint8), (1.0, 2), Own(ARRAY),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_kind_is_the_type_that_numba_finds(value: Any) -> None:
    kind = kind_of(value)
    assert machine.numba_type(kind) == numba.typeof(value)
    assert from_json(json.loads(json.dumps(kind))) == kind


@pytest.mark.parametrize("name", POLICIES)
def test_so_it_is_for_the_state_of_every_policy(name: str) -> None:
    budget: dict[str, Any] = {} if policy_class(name).guarantee == "none" else {"epsilon": 4.0, "delta": 1e-5}
    state = make_policy(name, dim=3, horizon=100, seed=1, **budget).state
    assert machine.numba_type(from_json(json.loads(json.dumps(kind_of(state))))) == numba.typeof(state)


def test_nothing_else_is_taken() -> None:
    with pytest.raises(TypeError, match="numbers, arrays and tuples"):
        kind_of("text")


def paths(kernel: Kernel, *values: Any) -> Any:
    codegen: Any = machine._dispatchers[solve.dot].targetctx.codegen()  # type: ignore[attr-defined]
    return KernelCache(kernel)._path(tuple(map(numba.typeof, values)), codegen)


def test_every_form_has_a_file_of_its_own() -> None:
    kernel, vector, strided = known.kernels[solve.dot], np.zeros(3), ARRAY[:, 1]
    entered = Kernel(solve.dot, entered=True)
    found = {paths(kernel, vector, vector), paths(kernel, vector, strided), paths(entered, vector, vector)}
    found.add(paths(known.kernels[solve.quadratic_form], ARRAY, vector))
    assert len(found) == 4


def test_nothing_foreign_is_kept() -> None:
    assert paths(known.kernels[solve.dot], Own(ARRAY), 1.0) is None
    assert paths(Kernel(test_nothing_foreign_is_kept), 1.0) is None
    assert not is_ours(("tacit.linalg.solve:dot", (kind_of(Own(ARRAY)),)))
    assert is_ours(("tacit.linalg.solve:dot", (kind_of(ARRAY),)))


def test_a_changed_callee_in_another_file_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tacit.policies.stream.steps` calls kernels of `tacit.linalg.solve`; `tacit.linalg.solve` does not call back."""
    outer, inner = "tacit.policies.stream.steps", "tacit.linalg.solve"
    make_policy("stream-glm", dim=3, horizon=100, epsilon=1.0, delta=1e-5, seed=1)
    before = [fingerprints.module_fingerprint(name) for name in (outer, inner)]
    contents = fingerprints._contents
    changed = Path(str(sys.modules[inner].__file__))
    monkeypatch.setattr(fingerprints, "_contents", lambda path: "edited" if path == changed else contents(path))
    fingerprints.module_fingerprint.cache_clear()
    after = [fingerprints.module_fingerprint(name) for name in (outer, inner)]
    fingerprints.module_fingerprint.cache_clear()
    assert before[0] != after[0]
    assert before[1] != after[1]
    changed = Path(str(sys.modules[outer].__file__))
    assert fingerprints.module_fingerprint(inner) == before[1]
    assert fingerprints.module_fingerprint(outer) != before[0]
    fingerprints.module_fingerprint.cache_clear()


@entry
def twice(x: float) -> float:
    """A kernel of a test."""
    return 2.0 * x


def test_collected_forms_are_those_that_were_called() -> None:
    forms = collect(lambda: (twice(1.0), twice(2.0), twice(3), as_entry(solve.dot)(ARRAY[0], ARRAY[1])))
    name = f"{__name__}:twice"
    assert [form for form in forms if form[0] == name] == [(name, ("f",)), (name, ("i",))]
    assert len(forms) == 3
