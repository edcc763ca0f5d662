"""Where runs are computed: processes of this machine (joblib) or a Ray cluster.

An engine takes a function and its tasks and gives results as they come, in any order.  Tasks carry their seeds and
share nothing, so that every engine gives the same rows.  One task occupies one core: BLAS and OpenMP have one thread
below it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import Any, Literal, Protocol, get_args

from tacit.errors import InvalidInput
from tacit.extras import named_extras

EngineName = Literal["joblib", "ray"]
Task = tuple[Any, ...]
_ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "BLIS", "VECLIB_MAXIMUM", "NUMBA")
}
_STARTS = 5
"""Times that a cluster on this machine is tried to be started."""
_QUEUE = 4
"""Tasks handed to Ray for each core: enough to keep it busy, few enough for Ctrl-C to be quick."""


class Engine(Protocol):
    """Runs tasks and yields their results."""

    def finished(self, function: Callable[..., Any], tasks: Sequence[Task]) -> Iterator[Any]:
        """Yield results of ``function(*task)`` in the order in which they are ready."""


@dataclass(frozen=True)
class Joblib:
    """``jobs`` processes of this machine; with one job, this process."""

    jobs: int = 1

    def finished(self, function: Callable[..., Any], tasks: Sequence[Task]) -> Iterator[Any]:
        """Yield results, one task after the other or one process for each job."""
        if self.jobs == 1 or len(tasks) <= 1:
            yield from (function(*task) for task in tasks)
            return
        with named_extras():
            from joblib import Parallel, delayed, parallel_config

        with parallel_config(backend="loky", inner_max_num_threads=1):
            pool = Parallel(n_jobs=self.jobs, return_as="generator_unordered", batch_size=1)
            yield from pool(delayed(function)(*task) for task in tasks)


@dataclass(frozen=True)
class Ray:
    """A Ray cluster: the one that ``RAY_ADDRESS`` names, else one of ``jobs`` cores on this machine.

    Its machines need the same version of the package, and the modules that experiments name.  A cluster that was
    started here ends with the tasks.
    """

    jobs: int = 1

    def finished(self, function: Callable[..., Any], tasks: Sequence[Task]) -> Iterator[Any]:
        """Yield results as the cluster's cores deliver them."""
        ray = _ray()
        mine = not ray.is_initialized()
        if mine:
            _connect(ray, self.jobs)
        remote = ray.remote(function).options(num_cpus=1)
        rest = iter(tasks)
        cores = int(ray.cluster_resources().get("CPU", self.jobs))
        waiting = [remote.remote(*task) for task in islice(rest, _QUEUE * cores)]
        try:
            while waiting:
                (ready,), waiting = ray.wait(waiting, num_returns=1)
                waiting += [remote.remote(*task) for task in islice(rest, 1)]
                yield ray.get(ready)
        finally:
            for left in waiting:
                ray.cancel(left, force=True)
            if mine:
                ray.shutdown()


def _ray() -> Any:
    with named_extras():
        return import_module("ray")


def _connect(ray: Any, jobs: int) -> None:
    """Join the cluster that the environment names, or start one."""
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    # Workers are started by Ray, not by this process: threads are pinned through their environment.
    workers = {"runtime_env": {"env_vars": _ONE_THREAD}}
    if os.environ.get("RAY_ADDRESS"):
        ray.init(address="auto", **quiet, **workers)
        return
    for left in reversed(range(_STARTS)):
        try:
            ray.init(num_cpus=jobs, include_dashboard=False, **quiet, **workers)
        except Exception as error:  # Ray has no class of its own for it, and waits for 30 seconds, busy machine or not
            ray.shutdown()
            if left == 0 or "timed out during startup" not in str(error):
                raise
        else:
            return


def make_engine(name: str, jobs: int) -> Engine:
    """Return the engine called ``name``."""
    if name not in get_args(EngineName):
        raise InvalidInput(f"engine must be one of {', '.join(get_args(EngineName))}, not {name!r}")
    return Ray(jobs) if name == "ray" else Joblib(jobs)
