"""Exact noise: how often a release excludes a neighbouring world with certainty, as a Markdown table.

The last column has the order of additions of 0.1.0's Newton step, g + (n + pull), in place of (g + n) + pull.

python -m benchmarks.exact_noise --redraws 2000 --seed 1
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from unittest.mock import patch

from tests.mutants.exclusions import KINDS, Exclusions, count_exclusions
from tests.mutants.wrong_order import PullBeforeSum


def main() -> int:
    """Count exclusions of every kind of release; 1 when there are any, or when the wrong order is not found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redraws", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(f"| release, {arguments.redraws:,} redraws | excluded | with g + (n + pull) |\n|---|---|---|")
    fine = True
    for kind in KINDS:
        found = count_exclusions(kind, arguments.redraws, arguments.seed)
        fine = fine and found.excluded == 0 and found.moved == found.redraws
        wrong = "no pull"
        if kind.startswith("gradient"):
            mutated = _with_the_pull_first(kind, arguments.redraws, arguments.seed)
            fine = fine and mutated.excluded > 0
            wrong = f"{mutated.excluded} ({mutated.share:.2%})"
        print(f"| {kind} | {found.excluded} | {wrong} |", flush=True)
    return 0 if fine else 1


def _with_the_pull_first(kind: str, redraws: int, seed: int) -> Exclusions:
    with ExitStack() as stack:
        for module, name, value in PullBeforeSum().changes():
            stack.enter_context(patch.object(module, name, value))
        return count_exclusions(kind, redraws, seed)


if __name__ == "__main__":
    raise SystemExit(main())
