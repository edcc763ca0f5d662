"""Record what all policies do, or compare what they do now with what was recorded.

    python -m tests.oracle record [--anew]                    play 100 runs of every case, write rows.json
    python -m tests.oracle add                                the same for cases without rows; all others keep theirs
    python -m tests.oracle compare [--case GLOB] [--seeds N]  play again; exit code 1 where something differs
                                                              that `tests/oracle/explained.py` does not explain

With more seeds than the 20 that have rows, mean regrets are over all of them, and are compared with those of 100 runs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context

from tests.oracle.cases import Case, Instance, Outcome, all_cases, chosen_cases, play_seeds
from tests.oracle.comparison import Comparison, compare
from tests.oracle.rows import FILE, RUNS, SEEDS, Row, Rows, make_row, read, rounded, write


def played(cases: Sequence[Case], seeds: int, jobs: int) -> Iterator[tuple[Case, list[Outcome]]]:
    """Each case with the outcomes of its seeds, in order; progress goes to standard error."""
    started = time.monotonic()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        # Spawned: a policy that noise protects refuses to go on in a forked process.
        runs = pool.map(play_seeds, cases, repeat(seeds))
        for number, (case, outcomes) in enumerate(zip(cases, runs, strict=True), start=1):
            print(f"[{number}/{len(cases)}, {time.monotonic() - started:.0f} s] ", end="", file=sys.stderr, flush=True)
            yield case, outcomes


def record(jobs: int, kept: Rows | None = None) -> None:
    """Play all cases that have no row in ``kept``, and write the file."""
    rows: dict[str, Row] = {} if kept is None else dict(kept.cases)
    worlds: dict[str, list[Instance]] = (
        {} if kept is None else {name: list(found) for name, found in kept.worlds.items()}
    )
    for case, outcomes in played([case for case in all_cases() if case.name not in rows], RUNS, jobs):
        rows[case.name] = row = make_row(case, outcomes)
        instances = [rounded(outcome.instance) for outcome in outcomes[:SEEDS]]
        if worlds.setdefault(row.world, instances) != instances:
            raise SystemExit(f"{case.name}: its world {row.world} is not the one that other cases had")
        print(f"{case.name}: regret {row.recorded_mean}")
    write(Rows({case.name: rows[case.name] for case in all_cases()}, worlds))
    print(f"{len(rows)} cases are in {FILE}, {FILE.stat().st_size / 1000:.0f} kB")


def compare_all(cases: Sequence[Case], seeds: int, jobs: int) -> int:
    """Play the cases again and print each beside its row; how many differ without a reason."""
    rows = read()
    found: list[Comparison] = []
    for case, outcomes in played(cases, seeds, jobs):
        found.append(compare(case, outcomes, rows))
        print(found[-1], flush=True)
    same = sum(comparison.same for comparison in found)
    explained = sum(not comparison.same and comparison.reason is not None for comparison in found)
    missing = len(found) - same - explained
    print(f"{len(found)} cases: {same} same, {explained} explained, {missing} differ")
    return missing


def main() -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--jobs", type=int, default=1, help="processes at work (default: 1)")
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="play every case and write rows.json")
    recording.add_argument("--anew", action="store_true", help="overwrite rows that are there")
    commands.add_parser("add", help="play the cases that have no rows, and add theirs to rows.json")
    comparing = commands.add_parser("compare", help="play cases again and compare")
    comparing.add_argument("--case", default="*", help="pattern of names, such as 'stream-glm/*' (default: all)")
    comparing.add_argument("--seeds", type=int, default=SEEDS, help=f"runs of each case (default: {SEEDS})")
    given = parser.parse_args()
    if given.command == "record":
        if FILE.exists() and not given.anew:
            parser.error(f"{FILE} exists: it holds what an earlier tree did; --anew overwrites it")
        record(given.jobs)
        return 0
    if given.command == "add":
        record(given.jobs, read())
        return 0
    cases = chosen_cases(given.case)
    if not cases:
        parser.error(f"no case is called {given.case!r}")
    return 1 if compare_all(cases, given.seeds, given.jobs) else 0


if __name__ == "__main__":
    sys.exit(main())
