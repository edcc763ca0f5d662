"""Links that a module outside the package registers: the same contract, the same policies, the same workers."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tacit.errors import InvalidInput
from tacit.glm import links
from tacit.glm.links import LINKS, ClickLink, get_link, register_link
from tacit.policies.registry import make_policy
from tacit.testing import check_link
from tacit.typing import FloatArray

ROOT = Path(__file__).parents[2]

TWIN = """
\"\"\"`twin`: another module's logistic link.\"\"\"

import numpy as np
from scipy.special import expit

from tacit.extend import ClickLink, register_link
from tacit.glm.links import get_link


class Twin(ClickLink):
    name = "twin"
    inflections = (0.0,)

    def mean(self, scores):
        return expit(np.asarray(scores, dtype=float))

    def derivative(self, scores):
        tail = np.exp(-np.abs(np.asarray(scores, dtype=float)))
        return tail / np.square(1.0 + tail)

    def antiderivative(self, scores):
        return np.logaddexp(0.0, scores)

    def curvature_bound(self, theta_bound):
        return 1.0 / (6.0 * 3.0**0.5)


register_link(Twin())


def mean_at(task):
    return float(get_link(task[0]).mean(task[1]))
"""
PLAY = """
import json
import numpy as np
import tacit
import twin

rng = np.random.default_rng(5)
contexts = rng.standard_normal((300, 6, 3))
contexts /= np.linalg.norm(contexts, axis=2, keepdims=True)
rewards = (rng.random((300, 6)) < 1.0 / (1.0 + np.exp(-contexts @ [1.5, -1.0, 0.5]))).astype(float)
arms = {}
for policy, options in (("stream-glm", {"epsilon": 8.0, "delta": 1e-4}), ("greedy-mle", {}), ("gloc", {})):
    for link in ("logistic", "twin"):
        made = tacit.make_policy(policy, dim=3, horizon=300, link=link, theta_bound=2.0, seed=7, **options)
        arms.setdefault(policy, []).append(made.play(contexts, rewards).tolist())
print(json.dumps(arms))
"""
IN_WORKERS = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from twin import mean_at

if __name__ == "__main__":
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        print(list(pool.map(mean_at, [("twin", 0.3), ("twin", -1.5), ("logistic", 0.3)])))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A researcher's folder: a module that registers a link, and programs that use it."""
    found = tmp_path_factory.mktemp("outside")
    for name, text in (("twin", TWIN), ("play", PLAY), ("in_workers", IN_WORKERS)):
        (found / f"{name}.py").write_text(text)
    return found


def _run(folder: Path, program: str) -> str:
    paths = os.pathsep.join([str(folder), str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, str(folder / f"{program}.py")],
        env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_policies_play_with_a_registered_link_as_with_the_packages(folder: Path) -> None:
    for policy, (ours, theirs) in json.loads(_run(folder, "play")).items():
        assert ours == theirs, policy


def test_worker_processes_know_the_link_of_the_module_that_they_import(folder: Path) -> None:
    means = json.loads(_run(folder, "in_workers"))
    assert means == [float(LINKS["logistic"].mean(z)) for z in (0.3, -1.5, 0.3)]


@pytest.fixture
def only_here() -> Iterator[None]:
    """Links that a test registers are forgotten after it."""
    known = dict(LINKS)
    yield
    links._links.clear()
    links._links.update(known)


class Cauchit(ClickLink):
    """mu = 1/2 + arctan(z) / pi."""

    name = "cauchit"
    inflections = (0.0,)

    def mean(self, scores: npt.ArrayLike) -> FloatArray:
        return np.asarray(0.5 + np.arctan(scores) / math.pi)

    def derivative(self, scores: npt.ArrayLike) -> FloatArray:
        return np.asarray(1.0 / (math.pi * (1.0 + np.square(scores))))

    def antiderivative(self, scores: npt.ArrayLike) -> FloatArray:
        z = np.asarray(scores)
        return np.asarray(0.5 * z + (z * np.arctan(z) - 0.5 * np.log1p(z * z)) / math.pi)

    def curvature_bound(self, theta_bound: float) -> float:
        """2 z / (pi (1 + z^2)^2), largest at z = 1 / sqrt(3)."""
        z = min(theta_bound, 1.0 / math.sqrt(3.0))
        return 2.0 * z / (math.pi * (1.0 + z * z) ** 2)


@pytest.mark.usefixtures("only_here")
def test_a_registered_link_keeps_the_contract_and_is_known_by_its_name() -> None:
    with pytest.raises(InvalidInput, match=r"probit, identity, log, got 'cauchit'; .* imported"):
        get_link("cauchit")
    link = Cauchit()
    register_link(link)
    assert get_link("cauchit") is link
    assert list(LINKS) == ["logistic", "probit", "identity", "log", "cauchit"]
    check_link(link)
    for z in (-3.0, 0.0, 2.5):
        assert link.mean_at(z) == link.mean(z) == pytest.approx(0.5 + math.atan(z) / math.pi)
    assert link.draw_rewards(0.3, 2.0, 0.1) == 2.0
    with pytest.raises(InvalidInput, match="log, cauchit, got 'cloglog'"):
        get_link("cloglog")


@pytest.mark.usefixtures("only_here")
def test_a_link_that_is_registered_again_leaves_earlier_policies_as_they_were() -> None:
    register_link(Cauchit())
    before = make_policy("gloc", dim=2, link="cauchit")

    def renewed() -> Any:
        class Cauchit(ClickLink):
            name = "cauchit"
            inflections = (0.0,)

            def mean(self, scores: npt.ArrayLike) -> FloatArray:
                return 0.25 + 1e-4 * np.asarray(scores)

            def derivative(self, scores: npt.ArrayLike) -> FloatArray:
                return np.full(np.shape(scores), 1e-4)

            def antiderivative(self, scores: npt.ArrayLike) -> FloatArray:
                return 0.25 * np.asarray(scores) + 0.5e-4 * np.square(scores)

            def curvature_bound(self, theta_bound: float) -> float:
                return 0.0

        Cauchit.__qualname__ = "Cauchit"
        return Cauchit()

    register_link(renewed())
    after = make_policy("gloc", dim=2, link="cauchit")
    assert (before.setting.link.mean_at(0.0), after.setting.link.mean_at(0.0)) == (0.5, 0.25)
    register_link(get_link("cauchit"))
    assert get_link("cauchit").mean_at(0.0) == 0.25


class Odd(Cauchit):
    """A cauchit of another name, one of whose functions is another."""

    def __init__(self, name: str, **functions: Any) -> None:
        self.name = name
        for function, replaced in functions.items():
            setattr(self, function, replaced)

    name = "odd"


def _named(name: str, function: Any) -> Any:
    function.__name__ = name
    return function


@pytest.mark.usefixtures("only_here")
def test_what_cannot_be_registered_says_why() -> None:
    for what in (Cauchit, "cauchit"):
        with pytest.raises(InvalidInput, match="must be an instance of a subclass of Link"):
            register_link(what)  # type: ignore[arg-type]
    for taken in ("logistic", "log"):
        with pytest.raises(InvalidInput, match=f"'{taken}' is known already"):
            register_link(Odd(taken))
    for name, function, fault in (
        ("mean", lambda z: 0.5, "mean must give a number for each score"),
        ("mean", lambda z: np.exp(8.0 * z) / (1.0 + np.exp(8.0 * z)), "mean must be finite for scores up to 700"),
        ("antiderivative", lambda z: np.asarray(z) / 0.0, "antiderivative must be finite"),
        ("derivative", lambda z: -np.ones(np.shape(z)), "derivative must not be negative"),
    ):
        with pytest.raises(InvalidInput, match=f"link wrong: (the )?{fault}"):
            register_link(Odd("wrong", **{name: _named(name, function)}))
    assert "wrong" not in LINKS
