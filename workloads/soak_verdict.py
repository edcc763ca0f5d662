"""What `workloads/soak.py` makes of its samples: flat or not, a table over time, and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from tacit.typing import FloatArray, IntArray

_BLOCKS: Final = 6
"""Parts of the last two thirds among which a trend is looked for."""
_TREND: Final = 0.01
"""Growth over the last two thirds that is no trend, even if it is steady."""
_DROP: Final = 0.1
"""Share of the store that a snapshot takes away at least."""
_SNAPSHOTS: Final = 4
"""How many of them each third must have: those of two policies, twice."""
_LINES: Final = 30
_MEGA: Final = 1 << 20


class Sample(NamedTuple):
    """A service at a moment, and the requests since the last one."""

    seconds: float
    memory: int
    """Resident bytes of the process."""
    files: int
    """Open files and connections."""
    threads: int
    store: int
    """Bytes of all files in the folder of the store."""
    requests: int
    p50_ms: float
    p99_ms: float
    slowest_ms: float
    pause_ms: float
    """Longest time without an answer to any of the decisions and rewards that waited."""


@dataclass(frozen=True)
class Bound:
    """What may grow from the second third to the last one: a share, or a number of things."""

    name: str
    share: float
    slack: float
    unit: float = 1.0
    sign: str = ""
    erased: bool = False
    """Whether it grows until the next snapshot, again and again."""


BOUNDS: Final = (
    Bound("memory", 0.03, 0.0, _MEGA, " MB"),
    Bound("store", 0.05, 0.0, _MEGA, " MB", erased=True),
    Bound("files", 0.0, 2.0),
    Bound("threads", 0.0, 2.0),
)


class Finding(NamedTuple):
    """One sentence of the verdict."""

    right: bool
    words: str


def verdict(samples: Sequence[Sample]) -> list[Finding]:
    """Whether everything that could grow is flat, and whether the run was long enough to say so."""
    if len(samples) < 3 * _BLOCKS:
        return [Finding(False, f"too short: {len(samples)} samples say nothing about growth")]
    found = [flatness(samples, bound) for bound in BOUNDS]
    seen = [snapshots(third) for third in thirds(_series(samples, "store"))]
    words = f"snapshots seen in the second and the last third: {seen[0]} and {seen[1]}"
    enough = min(seen) >= _SNAPSHOTS
    return [*found, Finding(enough, words if enough else f"too short: {words}, and {_SNAPSHOTS} each are needed")]


def flatness(samples: Sequence[Sample], bound: Bound) -> Finding:
    """Compare the means of the second and the last third; of a store, from the first snapshot of each to its last."""
    series = _series(samples, bound.name)
    second, last = (float((_whole(third) if bound.erased else third).mean()) for third in thirds(series))
    grown = last > second * (1.0 + bound.share) + bound.slack
    steady = bound.share > 0.0 and rises(series)
    shown = [f"{value / bound.unit:,.1f}{bound.sign}" for value in (second, last, series.max())]
    limit = f"{bound.share:.0%} more" if bound.share else f"{bound.slack:g} more"
    words = f"{bound.name}: {shown[0]} in the second third, {shown[1]} in the last one, {shown[2]} at most"
    trend = "; rises without a break" if steady else ""
    return Finding(not (grown or steady), f"{words} (may be {limit}{trend})")


def rises(series: FloatArray) -> bool:
    """Whether the last two thirds get larger from each part to the next, and by more than a trifle in all."""
    parts = np.array_split(series[len(series) // 3 :], _BLOCKS)
    means = np.array([part.mean() for part in parts])
    return bool((np.diff(means) > 0.0).all() and means[-1] > means[0] * (1.0 + _TREND))


def thirds(series: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The second and the last third."""
    size = len(series) // 3
    return series[-2 * size : -size], series[-size:]


def snapshots(store: FloatArray) -> int:
    """How often the store got smaller at once."""
    return len(_drops(store))


def _drops(store: FloatArray) -> IntArray:
    """Where it is smaller than just before."""
    return 1 + np.flatnonzero(store[1:] < (1.0 - _DROP) * store[:-1])


def _whole(store: FloatArray) -> FloatArray:
    """Without what is before the first and after the last snapshot: the rest of a sawtooth has a mean to compare."""
    drops = _drops(store)
    return store[drops[0] : drops[-1]] if len(drops) > 1 else store


def _series(samples: Sequence[Sample], name: str) -> FloatArray:
    return np.array([float(getattr(sample, name)) for sample in samples])


def table(samples: Sequence[Sample]) -> Iterator[str]:
    """Lines of text: what a sample has, and of those that share a line the worst."""
    yield (
        f"{'seconds':>8}{'memory MB':>11}{'store MB':>10}{'files':>7}{'threads':>9}{'requests/s':>12}"
        f"{'p50 ms':>8}{'p99 ms':>8}{'slowest ms':>12}{'pause ms':>10}"
    )
    begun = 0.0
    for part in np.array_split(np.arange(len(samples)), min(_LINES, len(samples))):
        own = [samples[place] for place in part]
        most = {name: max(getattr(sample, name) for sample in own) for name in Sample._fields}
        rate = sum(sample.requests for sample in own) / (own[-1].seconds - begun)
        begun = own[-1].seconds
        yield (
            f"{begun:>8.0f}{most['memory'] / _MEGA:>11.1f}{most['store'] / _MEGA:>10.1f}{most['files']:>7}"
            f"{most['threads']:>9}{rate:>12.0f}{float(np.median([sample.p50_ms for sample in own])):>8.2f}"
            f"{most['p99_ms']:>8.2f}{most['slowest_ms']:>12.1f}{most['pause_ms']:>10.1f}"
        )


def draw(samples: Sequence[Sample], path: Path) -> None:
    """Memory, size of the store and latency over time; the last two thirds, which are compared, are shaded."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    minutes = _series(samples, "seconds") / 60.0
    figure, axes = plt.subplots(3, 1, figsize=(9.0, 8.0), sharex=True)
    _line(axes[0], minutes, _series(samples, "memory") / _MEGA, "#0072B2", "resident memory")
    _line(axes[1], minutes, _series(samples, "store") / _MEGA, "#D55E00", "files of the store")
    for name, colour, label in (
        ("p50_ms", "#009E73", "p50"),
        ("p99_ms", "#0072B2", "p99"),
        ("pause_ms", "#000000", "longest pause"),
    ):
        _line(axes[2], minutes, _series(samples, name), colour, label)
    axes[2].set(yscale="log", ylabel="ms", xlabel="minutes")
    for axis in axes[:2]:
        axis.set(ylabel="MB", ylim=(0.0, None))
    for axis in axes:
        axis.axvspan(minutes[-1] / 3, 2 * minutes[-1] / 3, color="#eeeeee", zorder=0)
        axis.axvspan(2 * minutes[-1] / 3, minutes[-1], color="#dddddd", zorder=0)
        axis.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, ncols=3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)


def _line(axis: Any, minutes: FloatArray, values: FloatArray, colour: str, label: str) -> None:
    axis.plot(minutes, values, color=colour, linewidth=1.2, label=label)
