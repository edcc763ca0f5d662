"""What has no seed begins with the operating system's entropy, always; only tests may put other bytes in its place."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.steady import MARK, Tape, entropy_of

import tacit
from tacit.privacy import ExactNoise, NoNoise, Randomness, SecureNoise, make_noise, system_entropy
from tacit.privacy.discrete_gaussian import discrete_gaussian

PACKAGE = Path(tacit.__file__).parent
DRAWS: dict[str, Callable[[], object]] = {
    "exact": lambda: ExactNoise().gaussian(1.0, 3).tolist(),
    "exact integers": lambda: ExactNoise().integers(1e6, 3).tolist(),
    "discrete Gaussian": lambda: discrete_gaussian(10**6, 3).tolist(),
    "secure": lambda: SecureNoise().gaussian(1.0, 3).tolist(),
    "bits of a shuffled sum": lambda: SecureNoise().generator().integers(2**62, size=3).tolist(),
    "no noise": lambda: NoNoise().generator().integers(2**62, size=3).tolist(),
    "fast, unseeded": lambda: make_noise("fast").gaussian(1.0, 3).tolist(),
    "coins": lambda: Randomness.make(None, None, private=True).coins.random(3).tolist(),
    "coins, restored": lambda: (
        Randomness.from_json(Randomness.make(None, None, private=True).to_json()).coins.random(3).tolist()
    ),
    "coins, fresh": lambda: Randomness.make(1, None, private=True).fresh().coins.random(3).tolist(),
    "fast, fresh": lambda: Randomness.make(1, "fast", private=True).fresh().ticks.gaussian(1.0, 3).tolist(),
}
IN_A_PROCESS = """
import tacit
policy = tacit.make_policy("stream-glm", dim=2, epsilon=1.0, delta=1e-6)
print([policy.randomness.ticks.gaussian(1.0, 4).tolist(), policy.randomness.coins.random(4).tolist()])
"""


@pytest.mark.system_entropy
def test_the_function_is_that_of_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the same 32 bytes come with a chance of 2^-256."""
    assert system_entropy.read(32) != system_entropy.read(32)
    assert len(system_entropy.read(1_000)) == 1_000
    monkeypatch.setattr(os, "urandom", lambda count: b"\x07" * count)
    assert system_entropy.read(5) == b"\x07" * 5


@pytest.mark.system_entropy
@pytest.mark.parametrize("draw", DRAWS)
def test_every_draw_without_a_seed_reads_it(draw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes give the same numbers, so nothing else takes part; others give others, but for chances of 2^-60.

    Three numbers of 20 bits or more each.
    """
    bytes_of = {name: Tape(name) for name in ("one", "two")}
    read: list[int] = []

    def drawn(tape: Tape) -> object:
        def urandom(count: int) -> bytes:
            read.append(count)
            return tape.read(count)

        monkeypatch.setattr(os, "urandom", urandom)
        return DRAWS[draw]()

    first = drawn(bytes_of["one"])
    assert sum(read) >= 16
    assert drawn(Tape("one")) == first
    assert drawn(bytes_of["one"]) != first  # which goes on
    assert drawn(bytes_of["two"]) != first


@pytest.mark.system_entropy
def test_processes_that_nobody_has_prepared_differ() -> None:
    """Two policies that draw the same noise: a chance of 2^-80, since each of four numbers has 20 bits or more."""
    said = {
        subprocess.run([sys.executable, "-c", IN_A_PROCESS], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(said) == 2


@pytest.mark.system_entropy
@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_a_forked_process_does_not_repeat_its_parent() -> None:
    """Parent and child draw the same numbers with a chance of 2^-80."""
    ours, theirs = os.pipe()
    child = os.fork()
    noise = repr(ExactNoise().gaussian(1.0, 4).tolist()).encode()
    if child == 0:
        os.write(theirs, noise)
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(ours, 10_000) not in (noise, b"")
    os.close(ours)
    os.close(theirs)


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE), ast.parse(path.read_text())


def called(node: ast.AST) -> str:
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def unseeded(node: ast.AST) -> bool:
    """Whether this makes a generator that seeds itself."""
    makers = ("default_rng", "SeedSequence", "PCG64", "Philox", "SFC64", "MT19937", "RandomState")
    return isinstance(node, ast.Call) and called(node).rpartition(".")[2] in makers and not (node.args or node.keywords)


def test_nothing_else_in_the_package_reads_entropy_for_numbers() -> None:
    """One place to look at: neither the operating system's bytes nor a generator that seeds itself anywhere else."""
    found = {
        str(path)
        for path, tree in sources()
        for node in ast.walk(tree)
        if called(node).rpartition(".")[2] in ("urandom", "getrandom", "SystemRandom") or unseeded(node)
    }
    assert found == {"privacy/system_entropy.py"}


def test_nothing_in_the_package_replaces_it() -> None:
    def targets(node: ast.AST) -> list[ast.expr]:
        if isinstance(node, ast.Assign):
            return node.targets
        return [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else []

    for path, tree in sources():
        for node in ast.walk(tree):
            assert not any(ast.unparse(target).startswith("system_entropy.") for target in targets(node)), path
            assert not (called(node) == "setattr" and "system_entropy" in ast.unparse(node)), path
            if isinstance(node, ast.ImportFrom):  # a copy of the function would not be looked up
                assert node.module != "tacit.privacy.system_entropy", path


def test_tests_repeat_their_noise() -> None:
    """Each has a tape of its own name; what is nested goes back to it."""
    noise = [ExactNoise().gaussian(1.0, 3).tolist()]
    for name in ("a test", "a test", "another"):
        with entropy_of(name):
            noise.append(ExactNoise().gaussian(1.0, 3).tolist())
    assert noise[1] == noise[2]
    assert noise[0] != noise[1] != noise[3]
    own = Tape("tests/privacy/test_system_entropy.py::test_tests_repeat_their_noise")
    with entropy_of(None):
        assert system_entropy.read.__module__ == "tacit.privacy.system_entropy"
    assert isinstance(getattr(system_entropy.read, "__self__", None), Tape)
    assert np.array_equal(noise[0], discrete_gaussian(2**20, 3, own.read) * 2.0**-20)
    assert MARK == "system_entropy"
