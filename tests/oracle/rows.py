"""The file of recorded rows: what it holds, and how it is written and read."""

from __future__ import annotations

import json
import math
import statistics
from base64 import b85decode, b85encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from tacit.typing import IntArray
from tests.oracle.cases import DIGEST_LENGTH, Case, Instance, Outcome, digest

FILE: Final = Path(__file__).with_name("rows.json")
SEEDS: Final = 20
"""Runs of each case whose regret and digests are kept."""
RUNS: Final = 100
"""Runs of each case that its mean regret is over; the first of them are those of `SEEDS`."""
DIGITS: Final = 9
"""Decimals of regrets and checksums in the file: as many as comparisons look at."""
ESTIMATES: Final = 5
"""Runs of each case whose last estimate is kept, as one number."""
KEPT: Final = 2
"""Runs of a usual case whose arms and sums are kept in full; other cases have one."""


class Mean(NamedTuple):
    """A mean and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}"


def mean_of(values: Sequence[float]) -> Mean:
    """Mean and standard error; the latter is infinite for one value."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return Mean(statistics.fmean(values), error)


@dataclass(frozen=True)
class Row:
    """What one case came to, seed by seed."""

    world: str
    """Name of the world in the table of instances."""
    mean: list[float]
    """Mean regret over `RUNS` runs, and its standard error."""
    regret: list[float]
    arms: str
    """Digests of the arms, one after the other."""
    charged: list[int]
    """Lengths of the ledger; empty without privacy."""
    sums: str
    """Digests of the integer sums, one after the other; empty for a policy without such."""
    estimate: list[float]
    """Estimates of the first `ESTIMATES` runs, each as one number; empty for a policy without an estimate."""
    kept_arms: list[str]
    kept_sums: list[str]

    @property
    def recorded_mean(self) -> Mean:
        """Mean regret over `RUNS` runs."""
        return Mean(*self.mean)

    def arms_digest(self, seed: int) -> str:
        """Digest of the arms of one run."""
        return _cut(self.arms, seed)

    def sums_digest(self, seed: int) -> str | None:
        """Digest of the integer sums of one run; None where there are none."""
        return _cut(self.sums, seed) or None


class Rows(NamedTuple):
    """All that the file holds."""

    cases: Mapping[str, Row]
    worlds: Mapping[str, Sequence[Instance]]
    """The instance of each seed."""


def make_row(case: Case, outcomes: Sequence[Outcome]) -> Row:
    """The row of one case, from all of its runs."""
    kept = outcomes[: 1 if case.title else KEPT]
    first = outcomes[:SEEDS]
    return Row(
        world=case.world.name,
        mean=[round(part, 6) for part in mean_of([outcome.regret for outcome in outcomes])],
        regret=[round(outcome.regret, DIGITS) for outcome in first],
        arms="".join(digest(outcome.arms) for outcome in first),
        charged=[outcome.charged for outcome in first if outcome.charged],
        sums="".join(digest(outcome.sums) for outcome in first if outcome.sums is not None),
        estimate=[round(found.estimate, DIGITS) for found in first[:ESTIMATES] if found.estimate is not None],
        kept_arms=[pack(outcome.arms) for outcome in kept],
        kept_sums=[pack(outcome.sums) for outcome in kept if outcome.sums is not None],
    )


def rounded(instance: Instance) -> Instance:
    """An instance as the file has it."""
    return instance._replace(checksum=round(instance.checksum, DIGITS))


def write(rows: Rows, path: Path = FILE) -> None:
    """Write the file, one line for each case and world, so that a change of one shows as such."""
    worlds = {name: [tuple(rounded(found)) for found in instances] for name, instances in rows.worlds.items()}
    cases = {name: asdict(row) for name, row in rows.cases.items()}
    path.write_text(f'{{"worlds": {_lines(worlds)},\n"cases": {_lines(cases)}}}\n')


def read(path: Path = FILE) -> Rows:
    """Read what `write` wrote."""
    data = json.loads(path.read_text())
    worlds = {name: [Instance(*values) for values in instances] for name, instances in data["worlds"].items()}
    return Rows({name: Row(**values) for name, values in data["cases"].items()}, worlds)


def pack(values: IntArray) -> str:
    """An array of whole numbers as text: how many, the smallest, bits of each above that, and these bits."""
    lowest = int(values.min())
    width = max(1, (int(values.max()) - lowest).bit_length())
    bits = (values[:, None] - lowest) >> np.arange(width) & 1
    return f"{values.size} {lowest} {width} {b85encode(np.packbits(bits.astype(np.uint8)).tobytes()).decode()}"


def unpack(text: str) -> IntArray:
    """The array that gave ``text``."""
    size, lowest, width, packed = text.split(" ")
    bits = np.unpackbits(np.frombuffer(b85decode(packed), dtype=np.uint8), count=int(size) * int(width))
    table = bits.reshape(int(size), int(width)).astype(np.int64)
    return np.asarray(int(lowest) + (table << np.arange(int(width))).sum(axis=1), dtype=np.int64)


def _cut(digests: str, seed: int) -> str:
    return digests[DIGEST_LENGTH * seed : DIGEST_LENGTH * (seed + 1)]


def _lines(table: Mapping[str, Any]) -> str:
    entries: Iterable[str] = (
        f"{json.dumps(name)}: {json.dumps(values, separators=(',', ':'))}" for name, values in table.items()
    )
    return "{\n" + ",\n".join(entries) + "\n}"
