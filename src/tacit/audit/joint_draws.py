"""Are all noise draws of a policy jointly independent and standard normal?  A test with a proven false-alarm rate.

Marginal scales do not show a score noise that is minus the matrix noise, a draw that serves two releases, or a release
in which one coordinate has too little noise and another too much.  In each case some linear combination of what is
released has less noise than was charged, down to none.

**Tables.**  Releases of one kind are put in tables whose entries are all independent N(0, 1) under the hypothesis: one
line per release; one per pair of releases that lie 1, 2, ... apart in a run; one per pair of the same release in two
neighbouring runs; one per pair of releases of two kinds.  Pairs of one table have no release in common, which is why a
lag needs two tables.  Lines are then independent, and these laws are exact for every number of lines n:

* a column's sum of squares is chi-square with n degrees of freedom, that of the whole table with n times as many as
  columns;
* a column and an independent one, or a constant one, have an uncentred correlation r with r^2 ~ Beta(1/2, (n - 1)/2),
  since n normal draws have a uniformly distributed direction (Muirhead, Aspects of Multivariate Statistical Theory,
  1982, section 5.1);
* the part of a column that the other q - 1 columns do not explain has a sum of squares that is chi-square with
  n - q + 1 degrees of freedom (Muirhead, Theorem 3.2.10).  It is 0 for every column of a noise-free combination.

One bound is not exact but safe, for *every* linear combination at once: the singular values of a table over sqrt(n)
lie between 1 - b and 1 + b, b = sqrt(q / n) + t, except with probability e^(-n t^2 / 2) for either end (Davidson and
Szarek 2001, Theorem II.13).

**Totals.**  The sum of a run's releases over the root of their number is N(0, I): finds noise that cancels in a run.

**Repeats.**  Windows of w consecutive draws are compared up to signs.  Given all earlier draws, a draw equals a given
one with probability at most c: 1e-15 for floating point (the relative distance that counts as equal; |x| has a density
of at most 0.49 / |x|), plus 0.8 / s for noise on a grid of which a standard deviation has s steps.  So N draws have an
equal pair of windows with probability at most N^2 c^w / 2, and w is the smallest number that makes this small enough:
1 for up to 30,000 continuous draws, where a single draw that is used twice is found.

**False alarms.**  How many tests there are follows from the shapes alone.  Repeats have half of ``failure``, all other
tests equal shares of the rest: by the union bound ``failure`` bounds the probability of any finding when the noise is
right, however the tests depend on each other.  Assumed is that the number of a run's releases does not depend on its
noise.  Optimizer calls are triggered by released ticks, so for tables that pair ticks with calls it holds of the
correlations, given the ticks, and of the other laws only nearly.  Discrete Gaussian noise is treated as normal; the
lemma of ``privacy.lattice`` says how little that changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.stats import beta, chi2

from tacit._validate import integer_at_least, positive_or_inf, probability
from tacit.typing import FloatArray, IntArray

DrawRecord = tuple[str, FloatArray]
"""Kind of a release, and its noise in units of the planned standard deviation; a matrix is one release per line."""

FAILURE: Final = 1e-6
LAGS: Final = 4

_SAME: Final = 1e-15
"""Relative distance of equal draws; dividing by a scale and multiplying by it moves a float by 2.2e-16."""


def joint_findings(
    runs: Sequence[Sequence[DrawRecord]], *, failure: float = FAILURE, lags: int = LAGS, steps: float = math.inf
) -> list[str]:
    """What speaks against independent N(0, 1) noise in all releases of all runs; empty when nothing does.

    ``runs`` hold each run's releases in order.  ``failure`` bounds the probability of any finding when the noise is
    right.  ``lags`` is how far apart correlated releases are looked for.  ``steps`` is the standard deviation of
    the noise in steps of its grid, the smallest one of all releases; infinite for continuous noise.
    """
    probability("failure", failure)
    integer_at_least("lags", lags, 0)
    positive_or_inf("steps", steps)
    groups = _groups(runs)
    broken = [group.name for group in groups if not all(np.all(np.isfinite(run)) for run in group.runs)]
    if broken:
        return [f"{name}: noise that is not finite" for name in broken]
    tables = [table for table in _tables(groups, lags) if table.lines >= 2]
    level = 0.5 * failure / max(1, sum(table.tests for table in tables) + 2 * len(groups))
    findings = [finding for group in groups for finding in _total_finding(group, level)]
    for table in tables:  # those of single kinds come first; combinations of their findings are not repeated
        findings += _table_findings(table, level, combined=not (table.split and findings))
    findings += _repeat_findings(groups, 0.5 * failure, _SAME + 0.8 / steps)
    return findings


# Tables


@dataclass(frozen=True)
class _Group:
    """All releases of one kind and size."""

    name: str
    runs: list[FloatArray]
    """One matrix per run, a line per release."""
    times: list[IntArray]
    """Place of each release among all of its run."""


@dataclass(frozen=True)
class _Table:
    """Entries that are independent N(0, 1) under the hypothesis."""

    name: str
    values: FloatArray
    split: int = 0
    """Columns before it belong to one release, the others to another; 0 for a table of single releases."""

    @property
    def lines(self) -> int:
        return int(self.values.shape[0])

    @property
    def columns(self) -> int:
        return int(self.values.shape[1])

    @property
    def tests(self) -> int:
        """Tests that ``_table_findings`` makes at most: scales, means, correlations, residuals, two ends."""
        q = self.columns
        pairs = self.split * (q - self.split) if self.split else q * (q - 1) // 2 + 2 * (q + 1) + q
        return pairs + q + 2

    def column(self, index: int) -> str:
        """Name of a column in a finding."""
        if not self.split:
            return f"coordinate {index}"
        return f"coordinate {index} of one" if index < self.split else f"coordinate {index - self.split} of the other"


def _groups(runs: Sequence[Sequence[DrawRecord]]) -> list[_Group]:
    lines: dict[tuple[str, int], list[list[tuple[int, FloatArray]]]] = {}
    for number, run in enumerate(runs):
        time = 0
        for kind, draws in run:
            for line in np.atleast_2d(np.asarray(draws, dtype=np.float64)):
                group = lines.setdefault((kind, line.size), [[] for _ in runs])
                group[number].append((time, line))
                time += 1
    kinds = [kind for kind, _ in lines]
    groups = []
    for (kind, size), found in lines.items():
        name = kind if kinds.count(kind) == 1 else f"{kind} of size {size}"
        values = [np.array([line for _, line in run]).reshape(len(run), size) for run in found]
        groups.append(_Group(name, values, [np.array([time for time, _ in run], dtype=np.int64) for run in found]))
    return [group for group in groups if group.runs[0].shape[1] > 0]


def _tables(groups: list[_Group], lags: int) -> Iterator[_Table]:
    for group in groups:
        yield _Table(group.name, np.concatenate(group.runs))
    for group in groups:
        for lag in range(1, lags + 1):
            for odd in (0, 1):
                places = [_every_other(len(run), lag, odd) for run in group.runs]
                pairs = [np.hstack([run[at], run[at + lag]]) for run, at in zip(group.runs, places, strict=True)]
                yield _paired(f"{group.name}, releases {lag} apart", pairs, group)
        for odd in (0, 1):
            pairs = [_side_by_side(*group.runs[at : at + 2]) for at in range(odd, len(group.runs) - 1, 2)]
            yield _paired(f"{group.name}, same release in neighbouring runs", pairs, group)
    for a, b in combinations(groups, 2):
        pairs = [_side_by_side(x, y) for x, y in zip(a.runs, b.runs, strict=True)]
        yield _paired(f"{a.name} and {b.name}, in order of release", pairs, a)
        for first, second in ((a, b), (b, a)):
            yield _paired(f"{first.name} and the next of {second.name}", _followed(first, second), first)


def _paired(name: str, pairs: list[FloatArray], first: _Group) -> _Table:
    return _Table(name, np.concatenate(pairs) if pairs else np.empty((0, 2)), first.runs[0].shape[1])


def _every_other(length: int, lag: int, odd: int) -> IntArray:
    """Places t such that no two of the pairs (t, t + lag) have a place in common."""
    places = np.arange(max(length - lag, 0), dtype=np.int64)
    return np.asarray(places[(places // lag) % 2 == odd], dtype=np.int64)


def _side_by_side(first: FloatArray, second: FloatArray) -> FloatArray:
    length = min(len(first), len(second))
    return np.hstack([first[:length], second[:length]])


def _followed(first: _Group, second: _Group) -> list[FloatArray]:
    """Releases of the second group, each with the last one of the first group before it, none used twice."""
    pairs = []
    for run in range(len(first.runs)):
        before = np.searchsorted(first.times[run], second.times[run]) - 1
        used, position = np.unique(before, return_index=True)
        pairs.append(np.hstack([first.runs[run][used[used >= 0]], second.runs[run][position[used >= 0]]]))
    return pairs


# Tests of a table


def _table_findings(table: _Table, level: float, *, combined: bool) -> Iterator[str]:
    if not table.split:
        yield from _scale_findings(table, level)
    yield from _correlation_findings(table, level)
    if combined:
        yield from _combination_findings(table, level)


def _scale_findings(table: _Table, level: float) -> Iterator[str]:
    """Findings about the scale of each column and of all together, and about their means."""
    squares, n = np.sum(table.values**2, axis=0), table.lines
    low, high = _scale_range(n, level)
    scales = np.sqrt(squares / n)
    outside = (scales < low) | (scales > high)
    if np.any(outside):
        worst = int(np.argmax(np.where(outside, np.abs(np.log(np.maximum(scales, 1e-300))), -1.0)))
        yield (
            f"{table.name}: coordinate {worst} has {scales[worst]:.3f} of its planned noise in {n} releases, right is "
            f"{low:.3f} to {high:.3f} ({np.count_nonzero(outside)} of {scales.size} coordinates are outside)"
        )
    low, high = _scale_range(squares.size * n, level)
    if not low <= (scale := math.sqrt(float(np.mean(squares)) / n)) <= high:
        yield f"{table.name}: {scale:.3f} of the planned noise in all coordinates, right is {low:.3f} to {high:.3f}"
    means = np.sum(table.values, axis=0) / np.sqrt(np.maximum(squares * n, 1e-300))
    limit, worst = _correlation_limit(n, level), int(np.argmax(np.abs(means)))
    if abs(means[worst]) > limit:
        yield f"{table.name}: noise of coordinate {worst} is not centred, mean {means[worst]:.3f} beyond {limit:.3f}"


def _correlation_findings(table: _Table, level: float) -> Iterator[str]:
    unit = table.values / np.maximum(np.linalg.norm(table.values, axis=0), 1e-150)
    correlations, limit = unit.T @ unit, _correlation_limit(table.lines, level)
    considered = np.triu(np.ones_like(correlations), 1)
    if table.split:
        considered[: table.split, : table.split] = considered[table.split :, table.split :] = 0.0
    sizes = np.abs(correlations) * considered
    beyond = int(np.count_nonzero(sizes > limit))
    if beyond:
        i, j = (int(k) for k in np.unravel_index(int(np.argmax(sizes)), sizes.shape))
        yield (
            f"{table.name}: {table.column(i)} and {table.column(j)} have correlation {correlations[i, j]:.3f} in "
            f"{table.lines} lines, right is within {limit:.3f} ({beyond} of {int(considered.sum())} pairs are beyond)"
        )


def _combination_findings(table: _Table, level: float) -> Iterator[str]:
    """Does some linear combination of the columns have too little noise, or too much?"""
    n, q = table.values.shape
    if n <= q:
        return
    eigenvalues, vectors = np.linalg.eigh(table.values.T @ table.values)
    eigenvalues = np.maximum(eigenvalues, 1e-12)
    residuals = 1.0 / np.sum(vectors**2 / eigenvalues, axis=1)  # 1 / (G^-1)_jj: what the others leave of column j
    least = float(chi2.ppf(level, n - q + 1))
    if np.any(residuals < least):
        worst, freedom = int(np.argmin(residuals)), n - q + 1
        left, needed = math.sqrt(residuals[worst] / freedom), math.sqrt(least / freedom)
        yield (
            f"{table.name}: the noise of {table.column(worst)} is known from the others up to {left:.3f} of its "
            f"planned scale, right is {needed:.3f} or more ({np.count_nonzero(residuals < least)} of {q} coordinates)"
        )
    reach = math.sqrt(q / n) + math.sqrt(-2.0 * math.log(level) / n)
    ends = [math.sqrt(float(eigenvalues[end]) / n) for end in (0, -1)]
    for end, scale, wrong in ((0, ends[0], ends[0] < 1.0 - reach), (-1, ends[1], ends[1] > 1.0 + reach)):
        if wrong:
            heaviest = ", ".join(table.column(int(k)) for k in np.argsort(-np.abs(vectors[:, end]))[:2])
            yield (
                f"{table.name}: a combination, mostly of {heaviest}, has {scale:.3f} of the planned noise, right is "
                f"{max(0.0, 1.0 - reach):.3f} to {1.0 + reach:.3f}"
            )


def _total_finding(group: _Group, level: float) -> Iterator[str]:
    totals = [np.sum(run, axis=0) / math.sqrt(len(run)) for run in group.runs if len(run) > 1]
    if totals:
        low, high = _scale_range(len(totals) * totals[0].size, level)
        scale = math.sqrt(float(np.mean(np.square(totals))))
        if not low <= scale <= high:
            yield f"{group.name}: the total of a run has {scale:.3f} of its noise, right is {low:.3f} to {high:.3f}"


def _scale_range(draws: int, level: float) -> tuple[float, float]:
    """Where the root mean square of standard normal draws lies, except with probability ``level`` at either end."""
    return math.sqrt(float(chi2.ppf(level, draws)) / draws), math.sqrt(float(chi2.isf(level, draws)) / draws)


def _correlation_limit(lines: int, level: float) -> float:
    """Exceeded by |r| with probability ``level``; a hair more, since 1 is all that two lines can give."""
    return math.sqrt(float(beta.isf(level, 0.5, 0.5 * (lines - 1)))) + 1e-12


# Repeats


def _repeat_findings(groups: list[_Group], level: float, chance: float) -> Iterator[str]:
    """Windows of draws that are equal up to signs, anywhere."""
    sequences = [(group, number, run.ravel()) for group in groups for number, run in enumerate(group.runs)]
    draws = sum(sequence.size for _, _, sequence in sequences)
    if draws < 2 or chance >= 1.0:
        return
    width = max(1, math.ceil(math.log(2.0 * level / draws**2) / math.log(chance)))
    long = [entry for entry in sequences if entry[2].size >= width]
    if not long:
        return
    windows = np.concatenate([sliding_window_view(np.abs(sequence), width) for _, _, sequence in long])
    starts = np.cumsum([0] + [sequence.size - width + 1 for _, _, sequence in long])
    order = np.argsort(windows @ np.sqrt(1.0 + np.arange(width)), kind="stable")  # equal windows become neighbours
    ahead, behind = windows[order[:-1]], windows[order[1:]]
    equal = np.flatnonzero(np.all(np.abs(ahead - behind) <= _SAME * np.maximum(ahead, behind), axis=1))
    if equal.size:
        places = []
        for window in sorted(int(order[equal[0] + k]) for k in (0, 1)):
            entry = int(np.searchsorted(starts, window, side="right")) - 1
            group, number, _ = long[entry]
            release, coordinate = divmod(window - int(starts[entry]), group.runs[0].shape[1])
            places.append(f"{group.name}, run {number}, release {release}, coordinate {coordinate}")
        what = "a draw occurs" if width == 1 else f"{width} consecutive draws occur"
        yield f"{what} twice, up to signs: {places[0]}; {places[1]} ({equal.size} repeats in {draws} draws)"
