"""Links that a module outside the package registers: the same contract, the same kernels, and no stale machine code."""

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
import pytest
from tests.contracts.links import check_link

from tacit._compile import as_entry, kernel
from tacit.errors import InvalidInput
from tacit.glm import link_names, links
from tacit.glm.link_table import CAPACITY, FIRST_CODE
from tacit.glm.links import LINKS, ClickLink, LinkForm, LinkKernels, get_link, register_link

ROOT = Path(__file__).parents[2]

SCALED = '''
"""mu = 1 / (1 + exp(-slope z)); with slope 1 it is the package's logistic link, to the bit."""

import math

from tacit.glm.links import ClickLink, LinkKernels, get_link, register_link


class Scaled(ClickLink):
    name = "scaled"
    inflections = (0.0,)

    def __init__(self, name, slope):
        self.name, self.slope, self.kernels = name, slope, kernels_for(slope)

    def curvature_bound(self, theta_bound):
        return self.slope**2 / (6.0 * math.sqrt(3.0))


def kernels_for(slope):
    def mean(z):
        tail = math.exp(-abs(slope * z))
        return 1.0 / (1.0 + tail) if z >= 0.0 else tail / (1.0 + tail)

    def derivative(z):
        tail = math.exp(-abs(slope * z))
        return slope * (tail / ((1.0 + tail) * (1.0 + tail)))

    def antiderivative(z):
        return (max(slope * z, 0.0) + math.log1p(math.exp(-abs(slope * z)))) / slope

    return LinkKernels(mean, derivative, antiderivative)
'''
TWIN = """
from scaled import Scaled, get_link, register_link

register_link(Scaled("twin", 1.0))


def mean_at(task):
    return float(get_link(task[0]).mean(task[1]))
"""
STEEP_FIRST = """
from scaled import Scaled, register_link

register_link(Scaled("steep", 3.0))
register_link(Scaled("twin", 1.0))
"""
PLAY = """
import json, sys
import numpy as np
import tacit
from importlib import import_module
from tacit.glm.links import get_link

import_module(sys.argv[1])
rng = np.random.default_rng(5)
contexts = rng.standard_normal((300, 6, 3))
contexts /= np.linalg.norm(contexts, axis=2, keepdims=True)
rewards = (rng.random((300, 6)) < 1.0 / (1.0 + np.exp(-contexts @ [1.5, -1.0, 0.5]))).astype(float)
played = {}
for policy, options in (("stream-glm", {"epsilon": 8.0, "delta": 1e-4}), ("greedy-mle", {})):
    for link in sys.argv[2:]:
        made = tacit.make_policy(policy, dim=3, horizon=300, link=link, theta_bound=2.0, seed=7, **options)
        played[f"{policy} {link}"] = [int(arm) for arm in made.play(contexts, rewards)]
codes = {link: get_link(link).code for link in sys.argv[2:]}
print(json.dumps({"arms": played, "codes": codes}))
"""
IN_WORKERS = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from twin import mean_at

if __name__ == "__main__":
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        print(list(pool.map(mean_at, [("twin", 0.3), ("twin", -1.5), ("logistic", 0.3)])))
"""
VALUES = """
import json
import numpy as np
import steep_first
import sys
import tacit
from tacit.glm import links
from tacit.glm.links import get_link

found = []
for name in ("steep", "twin", "logistic"):
    link, scores = get_link(name), np.linspace(-3.0, 3.0, 7)
    found += [list(function(scores)) for function in (link.mean, link.derivative, link.antiderivative)]
    found.append(list(link.sample_rewards(scores, 1.0, 0.4)))
    found.append([links.mean(link.form, 0.2), links.derivative(link.form, 0.2), links.antiderivative(link.form, 0.2)])
    contexts = np.random.default_rng(5).uniform(-0.5, 0.5, (40, 6, 3))
    policy = tacit.make_policy("greedy-mle", dim=3, link=name, theta_bound=2.0, seed=7)
    found.append([int(arm) for arm in policy.play(contexts, (contexts[:, :, 0] > 0.1).astype(float))])
print(json.dumps(["numba" in sys.modules, found]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A researcher's folder: two modules that register links, and programs that use them."""
    found = tmp_path_factory.mktemp("outside")
    for name, text in (
        ("scaled", SCALED), ("twin", TWIN), ("steep_first", STEEP_FIRST),
        ("play", PLAY), ("in_workers", IN_WORKERS), ("values", VALUES),
    ):  # fmt: skip
        (found / f"{name}.py").write_text(text)
    return found


def _run(folder: Path, program: str, *arguments: str, **environment: str) -> str:
    paths = os.pathsep.join([str(folder), str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, str(folder / f"{program}.py"), *arguments],
        env=os.environ | {"PYTHONPATH": paths} | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kernels_reach_a_registered_link_also_from_a_cache_that_has_never_seen_it(folder: Path) -> None:
    """The second process loads what the first compiled; its code 100 is another link."""
    first = json.loads(_run(folder, "play", "twin", "logistic", "twin"))
    second = json.loads(_run(folder, "play", "steep_first", "steep", "twin"))
    assert first["codes"] == {"logistic": 0, "twin": FIRST_CODE}
    assert second["codes"] == {"steep": FIRST_CODE, "twin": FIRST_CODE + 1}
    for policy in ("stream-glm", "greedy-mle"):
        expected = first["arms"][f"{policy} logistic"]
        assert first["arms"][f"{policy} twin"] == expected
        assert second["arms"][f"{policy} twin"] == expected
        assert second["arms"][f"{policy} steep"] != expected


def test_worker_processes_know_the_link_of_the_module_that_they_import(folder: Path) -> None:
    means = json.loads(_run(folder, "in_workers"))
    assert means == [float(LINKS["logistic"].mean(z)) for z in (0.3, -1.5, 0.3)]


def test_without_compilation_the_numbers_are_the_same(folder: Path) -> None:
    (loads_numba, compiled), (plainly, plain) = (
        json.loads(_run(folder, "values", TACIT_COMPILE=switch)) for switch in ("1", "0")
    )
    assert (loads_numba, plainly) == (True, False)
    for ours, theirs in zip(compiled, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)


@pytest.fixture
def only_here() -> Iterator[None]:
    """Links that a test registers are forgotten after it."""
    known, names = dict(LINKS), list(link_names.LINK_NAMES)
    yield
    links._links.clear()
    links._links.update(known)
    link_names._names[:] = names


@kernel
def _cauchit(z: float) -> float:
    return 0.5 + math.atan(z) / math.pi


class Cauchit(ClickLink):
    """mu = 1/2 + arctan(z) / pi."""

    name = "cauchit"
    inflections = (0.0,)
    kernels = LinkKernels(
        _cauchit,
        lambda z: 1.0 / (math.pi * (1.0 + z * z)),
        lambda z: 0.5 * z + (z * math.atan(z) - 0.5 * math.log1p(z * z)) / math.pi,
    )

    def curvature_bound(self, theta_bound: float) -> float:
        """2 z / (pi (1 + z^2)^2), largest at z = 1 / sqrt(3)."""
        z = min(theta_bound, 1.0 / math.sqrt(3.0))
        return 2.0 * z / (math.pi * (1.0 + z * z) ** 2)


@pytest.mark.usefixtures("only_here")
def test_a_registered_link_keeps_the_contract_and_is_known_by_its_name() -> None:
    with pytest.raises(InvalidInput, match=r"probit, identity, log, got 'cauchit'; .* imported"):
        get_link("cauchit")
    link = Cauchit()
    with pytest.raises(InvalidInput, match="cauchit is not registered"):
        _ = link.form
    register_link(link)
    assert get_link("cauchit") is link
    assert list(LINKS) == list(link_names.LINK_NAMES) == ["logistic", "probit", "identity", "log", "cauchit"]
    check_link(link)
    for z in (-3.0, 0.0, 2.5):
        assert links.mean(link.form, z) == link.mean(z) == pytest.approx(0.5 + math.atan(z) / math.pi)
        assert links.sample_reward(link.form, 0.3, 2.0, 0.1) == 2.0
    with pytest.raises(InvalidInput, match="log, cauchit, got 'cloglog'"):
        get_link("cloglog")


@pytest.mark.usefixtures("only_here")
def test_a_link_that_is_registered_again_leaves_earlier_codes_as_they_were() -> None:
    register_link(Cauchit())
    before = get_link("cauchit").form

    def renewed() -> Any:
        class Cauchit(ClickLink):
            name = "cauchit"
            inflections = (0.0,)
            kernels = LinkKernels(lambda z: 0.25, lambda z: 0.0, lambda z: 0.25 * z)

            def curvature_bound(self, theta_bound: float) -> float:
                return 0.0

        Cauchit.__qualname__ = "Cauchit"
        return Cauchit()

    register_link(renewed())
    after = get_link("cauchit").form
    assert after != before
    assert (links.mean(before, 0.0), links.mean(after, 0.0)) == (0.5, 0.25)
    register_link(get_link("cauchit"))  # type: ignore[arg-type]
    assert get_link("cauchit").form == after
    assert Cauchit().form == before


class Bare(ClickLink):
    """Nothing but a name."""

    inflections = ()

    def __init__(self, name: str, *kernels: Any) -> None:
        self.name = name
        self.kernels = LinkKernels(*kernels) if kernels else None

    name = "bare"

    def curvature_bound(self, theta_bound: float) -> float:
        return 0.0


def _fails_above_one(z: float) -> float:
    if z > 1.0:
        raise ValueError("too far")
    return z


@pytest.mark.usefixtures("only_here")
def test_what_cannot_be_registered_or_used_says_why() -> None:
    functions = (lambda z: z, lambda z: 1.0, lambda z: 0.5 * z * z)
    with pytest.raises(InvalidInput, match="must be a CompiledLink that states its kernels"):
        register_link(Bare("bare"))
    for taken in ("logistic", "log"):
        with pytest.raises(InvalidInput, match=f"'{taken}' is known already"):
            register_link(Bare(taken, *functions))
    register_link(Bare("untyped", lambda z: "text", *functions[1:]))
    with pytest.raises(InvalidInput, match="link untyped: numba cannot compile <lambda>"):
        _ = get_link("untyped").form
    register_link(Bare("whole", lambda z: 1, *functions[1:]))
    assert links.mean(get_link("whole").form, 0.3) == 1.0


@pytest.mark.usefixtures("only_here")
def test_a_function_that_fails_is_not_called_again() -> None:
    register_link(Bare("fragile", _fails_above_one, lambda z: 1.0, lambda z: 0.5 * z * z))
    mean, derivative = as_entry(links.mean), as_entry(links.derivative)
    form = get_link("fragile").form
    assert mean(form, 0.5) == 0.5
    assert math.isnan(mean(form, math.nan))  # no fault of the function's
    assert mean(form, 0.5) == 0.5
    assert math.isnan(mean(form, 2.0))
    for _ in range(2):
        with pytest.raises(ValueError, match="whose function raised an error or gave NaN"):
            mean(form, 0.5)
    assert derivative(form, 0.5) == 1.0


@pytest.mark.usefixtures("only_here")
def test_interpreted_it_raises_its_own_error_and_a_nan_is_one() -> None:
    register_link(Bare("fragile too", _fails_above_one, lambda z: math.nan, lambda z: 0.5 * z * z))
    form = get_link("fragile too").form
    with pytest.raises(ValueError, match="too far"):
        links.mean(form, 2.0)
    with pytest.raises(ValueError, match="whose function raised an error or gave NaN"):
        links.derivative(form, 0.5)


@pytest.mark.parametrize("code", [FIRST_CODE - 1, FIRST_CODE + CAPACITY - 1, FIRST_CODE + CAPACITY, 2**40, -(2**40)])
def test_codes_of_nothing_are_refused(code: int) -> None:
    with pytest.raises(ValueError, match="unknown link code"):
        links.mean(LinkForm(code, 0.0), 0.5)
