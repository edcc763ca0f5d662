"""Every engine gives the same rows."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

import pytest
from tests.experiments.test_runner import experiment, timeless

from tacit.errors import InvalidInput, MissingExtra
from tacit.experiments import engines
from tacit.experiments.engines import Engine, Joblib, Ray, make_engine
from tacit.experiments.runner import run_all

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray")


class InOneProcess:
    """Stands for the module ``ray``: tasks run at once, the last one is ready first."""

    def __init__(self) -> None:
        self.started: dict[str, Any] | None = None
        self.cancelled: list[int] = []
        self.down = False

    def is_initialized(self) -> bool:
        return self.started is not None

    def init(self, **settings: Any) -> None:
        self.started = settings

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def remote(self, function: Any) -> Any:
        def run(*task: Any) -> Any:
            return function(*task)

        run.options = lambda num_cpus: run  # type: ignore[attr-defined]
        run.remote = run  # type: ignore[attr-defined]
        return run

    def wait(self, waiting: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        return waiting[-num_returns:], waiting[:-num_returns]

    def get(self, ready: Any) -> Any:
        return ready

    def cancel(self, left: int, force: bool) -> None:
        self.cancelled.append(left)

    def shutdown(self) -> None:
        self.down = True


def double(value: int) -> int:
    return 2 * value


@pytest.mark.parametrize("engine", [Joblib(1), Joblib(2)])
def test_all_tasks_are_finished_once(engine: Engine) -> None:
    assert sorted(engine.finished(double, [(i,) for i in range(7)])) == [0, 2, 4, 6, 8, 10, 12]
    assert list(engine.finished(double, [])) == []


def test_ray_is_fed_a_few_tasks_at_a_time_and_ends_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = InOneProcess()
    monkeypatch.setattr(engines, "_ray", lambda: ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert sorted(Ray(2).finished(double, [(i,) for i in range(20)])) == [2 * i for i in range(20)]
    assert ray.started is not None
    assert ray.started["num_cpus"] == 2
    assert ray.started["runtime_env"]["env_vars"]["OMP_NUM_THREADS"] == "1"
    assert ray.down
    assert ray.cancelled == []


def test_leaving_ray_early_cancels_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = InOneProcess()
    monkeypatch.setattr(engines, "_ray", lambda: ray)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    results = Ray(2).finished(double, [(i,) for i in range(20)])
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert ray.started is not None
    assert ray.started["address"] == "auto"
    assert len(ray.cancelled) == 8
    assert ray.down


def test_a_missing_ray_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> ModuleType:
        raise ModuleNotFoundError(name, name=name)

    monkeypatch.setattr(engines, "import_module", refuse)
    with pytest.raises(MissingExtra, match=r"tacit-bandits\[ray\]"):
        list(Ray(1).finished(double, [(1,)]))
    with pytest.raises(InvalidInput, match="joblib, ray"):
        make_engine("spark", 1)


@needs_ray
@pytest.mark.filterwarnings("ignore")
def test_ray_gives_the_same_rows() -> None:
    chosen = [experiment(), experiment(contexts="fixed")]
    here = run_all(chosen, runs=3, seed=3, jobs=1)
    there = run_all(chosen, runs=3, seed=3, jobs=2, engine="ray")
    assert timeless(here) == timeless(there)
