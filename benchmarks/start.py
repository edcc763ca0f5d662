"""What a start costs: the README's five lines beside their imports, and the first decisions of a fresh process.

    python benchmarks/start.py [--repeats 5]

Times are medians of whole processes, in turn with ``import scipy.special``: a machine that slows down slows down both.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMPORTS = "import scipy.special"
PRIVATE = ("stream-glm", "joint-glm", "shuffle-glm", "joint-linucb", "shuffle-linucb", "local-glm")
FIRST = """
import time, numpy as np, tacit
rng = np.random.default_rng(0)
policy = tacit.make_policy(
    {name!r}, dim={dim}, horizon=30_000, epsilon=4.0, delta=1e-5, link="logistic", theta_bound=3.5, seed=0
)
contexts = rng.standard_normal(({decisions}, 20, {dim}))
contexts *= 0.999 / np.maximum(1.0, np.linalg.norm(contexts, axis=2, keepdims=True))
start = time.process_time()
for arms in contexts:
    policy.update(policy.select(arms), float(rng.integers(2)))
print(time.process_time() - start)
"""


def main() -> None:
    """Print one line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--decisions", type=int, default=30_000, help="Of a fresh process, for each policy.")
    given = parser.parse_args()
    _five_lines(given.repeats)
    for name in PRIVATE:
        seconds = {dim: _first(name, dim, given.decisions) for dim in (5, 20)}
        told = ", ".join(f"d = {dim}: {found:.2f} s" for dim, found in seconds.items())
        print(f"first {given.decisions} decisions and rewards, {name}, K = 20, CPU time: {told}")


def _five_lines(repeats: int) -> None:
    """The first Python block of the README."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert found is not None
    imports, lines = [], []
    for _ in range(repeats):
        imports.append(_timed(IMPORTS))
        lines.append(_timed(found[1]))
    base, whole = statistics.median(imports), statistics.median(lines)
    print(f"{IMPORTS}: {base:.2f} s")
    print(f"five lines: {whole:.2f} s ({whole / base:.2f} times)")


def _first(name: str, dim: int, decisions: int) -> float:
    """Seconds of processor time of the first decisions and rewards, imports aside."""
    program = FIRST.format(name=name, dim=dim, decisions=decisions)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(done.stdout)


def _timed(program: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
