"""What a start costs: the README's five lines, decisions before anything is compiled, and compilation itself.

    python benchmarks/start.py [--repeats 5]

Times are medians of whole processes, each beside ``import numba, scipy.stats`` in the same round: a machine that slows
down slows down both.  Seconds of compilation are processor time, with the imports of the processes that compile.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMPORTS = "import numba, scipy.stats"
PRIVATE = ("stream-glm", "joint-glm", "shuffle-glm", "joint-linucb", "shuffle-linucb", "local-glm")
INTERPRETED = """
import time, numpy as np, tacit
rng = np.random.default_rng(0)
policy = tacit.make_policy(
    {name!r}, dim={dim}, horizon=15_000, epsilon=4.0, delta=1e-5, link="logistic", theta_bound=3.5, seed=0
)
contexts = rng.standard_normal((150, 20, {dim}))
contexts *= 0.999 / np.maximum(1.0, np.linalg.norm(contexts, axis=2, keepdims=True))
times = []
for arms in contexts:
    start = time.perf_counter()
    policy.update(policy.select(arms), float(rng.integers(2)))
    times.append(time.perf_counter() - start)
print(1e3 * np.median(times))
"""


def main() -> None:
    """Print one line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        _five_lines(Path(folder), repeats)
        for name in PRIVATE:
            print(
                f"interpreted decision and reward, {name}, K = 20: "
                + ", ".join(f"d = {dim}: p50 {_interpreted(Path(folder), name, dim):.2f} ms" for dim in (5, 20))
            )
        for what, names in (("stream-glm", "stream-glm"), ("the policies of the demo", _demo_policies())):
            seconds, _ = _warm(Path(folder), names, "1")
            _, elapsed = _warm(Path(folder), names, str(os.cpu_count()))
            print(f"compilation, {what}: {seconds:.1f} CPU seconds in one process, {elapsed:.1f} s on all cores")


def _five_lines(folder: Path, repeats: int) -> None:
    """The first Python block of the README, with an empty cache and with a full one."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert found is not None
    lines, full = found[1], folder / "full"
    _warm_into(full, "stream-glm")
    imports, cold, warm = [], [], []
    for repeat in range(repeats):
        imports.append(_timed(IMPORTS, folder / "unused"))
        cold.append(_timed(lines, folder / f"empty-{repeat}"))
        warm.append(_timed(lines, full))
    base = statistics.median(imports)
    print(f"{IMPORTS}: {base:.2f} s")
    for what, times in (("empty cache", cold), ("full cache", warm)):
        print(f"five lines, {what}: {statistics.median(times):.2f} s ({statistics.median(times) / base:.2f} times)")


def _interpreted(folder: Path, name: str, dim: int) -> float:
    """Median milliseconds of `select` and `update` together before anything is compiled."""
    program = INTERPRETED.format(name=name, dim=dim)
    environment = _environment(folder / "unused") | {"TACIT_COMPILE": "0"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def _demo_policies() -> str:
    from tacit.experiments.reproduce import demo

    return ",".join(dict.fromkeys(experiment.policy for experiment in demo().experiments()))


def _warm(folder: Path, names: str, jobs: str) -> tuple[float, float]:
    """Processor time and time of filling an empty cache."""
    cache = folder / "compiled"
    shutil.rmtree(cache, ignore_errors=True)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    _warm_into(cache, names, jobs)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, time.perf_counter() - start


def _warm_into(cache: Path, names: str, jobs: str = "1") -> None:
    command = [sys.executable, "-m", "tacit", "warm", "--policies", names, "--jobs", jobs]
    subprocess.run(command, env=_environment(cache), capture_output=True, check=True)


def _timed(program: str, cache: Path) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], env=_environment(cache), capture_output=True, check=True)
    return time.perf_counter() - start


def _environment(cache: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key != "TACIT_COMPILE"}
    return kept | {"TACIT_CACHE": str(cache)}


if __name__ == "__main__":
    main()
