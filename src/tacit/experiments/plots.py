"""Figures: colour-blind safe, readable without colour by line styles and markers, legends outside the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tacit.experiments.plan import Plan
from tacit.experiments.results import Row
from tacit.experiments.tables import epsilon_text
from tacit.extras import named_extras

with named_extras():
    import matplotlib

matplotlib.use("Agg")  # no window, on machines that could open one too

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

# Okabe and Ito's colours, without the yellow, which is too faint for lines.
_BLACK, _ORANGE, _SKY, _GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
_BLUE, _RED, _PINK = "#0072B2", "#D55E00", "#CC79A7"
_GREY = "#767676"
_CROWDED = 10.0
"""Ratio of the largest to the smallest regret from which a linear axis would hide the smaller ones."""
_DASHES: tuple[Any, ...] = ("solid", (0, (6, 2)), (0, (3, 2, 1, 2)), (0, (1, 1.5)), (0, (8, 2, 1, 2, 1, 2)))


class Look(NamedTuple):
    """How a policy is drawn; its epsilons differ by dashes."""

    colour: str
    marker: str


_LOOKS = {
    "joint-glm": Look(_BLUE, "o"),
    "stream-glm": Look(_RED, "s"),
    "shuffle-glm": Look(_GREEN, "D"),
    "rs-glinucb": Look(_BLACK, "^"),
    "gloc": Look(_ORANGE, "v"),
    "glm-ucb": Look(_PINK, "X"),
    "ecolog": Look(_SKY, "P"),
    "random": Look(_GREY, "x"),
}
_SPARE = [Look(colour, marker) for marker in "<>*hdp" for colour in (_GREEN, _ORANGE, _SKY, _PINK, _BLUE, _GREY)]


def looks(policies: Sequence[str]) -> dict[str, Look]:
    """Give each policy the look that it has in every figure; unknown ones take spare looks in turn."""
    spare = iter(_SPARE)
    return {name: _LOOKS[name] if name in _LOOKS else next(spare) for name in dict.fromkeys(policies)}


def curves(panels: Sequence[tuple[str, Sequence[Row]]], path: Path) -> None:
    """Mean cumulative regret over rounds with bands of one standard error, one panel for each setting."""
    rows = [row for _, panel in panels for row in panel]
    chosen = looks([row["policy"] for row in rows])
    figure, axes = _sheet(len(panels))
    crowded, several = _crowded(rows), len(panels) > 1
    for axis, (title, panel) in zip(axes, panels, strict=True):
        for row in panel:
            _draw_curve(axis, row, chosen[row["policy"]], _dash(row, panel), first=crowded, with_result=not several)
        axis.set(title=title, xlabel="round", xlim=(0, 1.01 * max((row["horizon"] for row in panel), default=1)))
    axes[0].set_ylabel("cumulative regret")
    _regret_axis(axes[0], rows)
    _legend(axes[-1], [row["regret_mean"] for row in panels[-1][1]])
    _save(figure, path)


def _crowded(rows: Sequence[Row]) -> bool:
    final: list[float] = [row["regret_mean"] for row in rows]
    return min(final) > 0.0 and max(final) > _CROWDED * min(final)


def _regret_axis(axis: Axes, rows: Sequence[Row]) -> None:
    """Begin the axis at zero, or make it logarithmic when curves would crowd at the bottom."""
    final = [row["regret_mean"] for row in rows]
    if _crowded(rows):
        axis.set(yscale="log", ylim=(max(1.0, min(final) / 4), 1.3 * max(final)))
        _plain_log_ticks(axis)
    else:
        axis.set_ylim(0, 1.05 * max(final) or 1.0)


def _plain_log_ticks(axis: Axes) -> None:
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _draw_curve(axis: Axes, row: Row, look: Look, dash: Any, *, first: int, with_result: bool) -> None:
    """Draw mean and band of one row from point ``first`` on: a logarithmic axis cannot show the zero at the start."""
    rounds = [0, *row["regret_rounds"]][first:]
    means, errors = [0.0, *row["regret_curve"]][first:], [0.0, *row["regret_curve_se"]][first:]
    name = row["policy"] if row["epsilon"] is None else f"{row['policy']}, ε = {epsilon_text(row['epsilon'])}"
    label = f"{name}: {means[-1]:,.0f}" if with_result else name
    marks: dict[str, Any] = {"marker": look.marker, "markersize": 5, "markevery": (5, 9)}
    axis.plot(rounds, means, color=look.colour, linestyle=dash, linewidth=1.6, label=label, **marks)
    _draw_band(axis, rounds, means, errors, look.colour)


def _draw_band(axis: Axes, x: Sequence[float], means: Sequence[float], errors: Sequence[float], colour: str) -> None:
    low, high = (np.array(means) + sign * np.array(errors) for sign in (-1.0, 1.0))
    axis.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)


def _dash(row: Row, panel: Sequence[Row]) -> Any:
    """Return a solid line for the largest epsilon, and more broken ones for stricter privacy."""
    levels = sorted({float(other["epsilon"]) for other in panel if other["epsilon"] is not None}, reverse=True)
    return _DASHES[0] if row["epsilon"] is None else _DASHES[levels.index(float(row["epsilon"])) % len(_DASHES)]


def price_of_privacy(rows: Sequence[Row], published: dict[float, float], path: Path) -> None:
    """Final regret against epsilon; policies without privacy are level lines, the paper's figures hollow marks."""
    chosen = looks([row["policy"] for row in rows])
    figure, (axis,) = _sheet(1)
    heights: dict[str, float] = {}
    for row in (row for row in rows if row["epsilon"] is None):
        heights[_draw_level(axis, row, chosen[row["policy"]])] = row["regret_mean"]
    if published:
        label = "the paper's Private-GLM, as published"
        heights[label] = max(published.values())
        hollow: dict[str, Any] = {"marker": "o", "markersize": 7, "markerfacecolor": "white"}
        axis.plot(*zip(*published.items(), strict=True), color=_GREY, linestyle=_DASHES[3], label=label, **hollow)
    for policy in dict.fromkeys(row["policy"] for row in rows if row["epsilon"] is not None):
        own = [row for row in rows if row["policy"] == policy]
        heights[_draw_against_epsilon(axis, own, chosen[policy])] = own[-1]["regret_mean"]
    _epsilon_axes(axis, rows, published)
    _legend(axis, [heights[label] for label in axis.get_legend_handles_labels()[1]])
    _save(figure, path)


def _draw_level(axis: Axes, row: Row, look: Look) -> str:
    style = _DASHES[1] if row["policy"] == "random" else _DASHES[2]
    label = f"{row['policy']}, no privacy: {row['regret_mean']:,.0f}"
    if row["policy"] == "random":
        label = f"random, learns nothing: {row['regret_mean']:,.0f}"
    axis.axhline(row["regret_mean"], color=look.colour, linestyle=style, linewidth=1.4, label=label)
    return label


def _draw_against_epsilon(axis: Axes, rows: Sequence[Row], look: Look) -> str:
    label = f"{rows[0]['policy']} (tacit), private"
    x, y = [float(row["epsilon"]) for row in rows], [row["regret_mean"] for row in rows]
    errors = [row["regret_se"] for row in rows]
    marks: dict[str, Any] = {"marker": look.marker, "markersize": 7, "linewidth": 1.8, "capsize": 3}
    axis.errorbar(x, y, yerr=errors, color=look.colour, label=label, **marks)
    for epsilon, regret in zip(x, y, strict=True):
        place: dict[str, Any] = {"textcoords": "offset points", "xytext": (0, 9), "ha": "center", "fontsize": 9}
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8}
        axis.annotate(f"{regret:,.0f}", (epsilon, regret), color=look.colour, bbox=box, **place)
    return label


def _epsilon_axes(axis: Axes, rows: Sequence[Row], published: dict[float, float]) -> None:
    ticks = sorted({float(row["epsilon"]) for row in rows if row["epsilon"] is not None} | set(published))
    axis.set(xscale="log", yscale="log", xlabel="privacy ε (smaller is stricter)", ylabel="cumulative regret")
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    _plain_log_ticks(axis)
    row = rows[0]
    axis.set_title(f"What privacy costs after {row['horizon']:,} rounds ({row['link']}, d = {row['dim']})")


def gains(expected: Plan, path: Path) -> None:
    """Share of what is to be gained over random arms against decisions, with the interval of each schema and budget."""
    figure, (axis,) = _sheet(1)
    schemas = list(dict.fromkeys(outlook.schema for outlook in expected.outlooks))
    for number, outlook in enumerate(expected.outlooks):
        off = math.isinf(outlook.epsilon)
        colour = _GREY if off else (_RED, _BLUE, _GREEN, _ORANGE, _SKY, _PINK, _BLACK)[number % 7]
        label = (
            f"{Path(outlook.schema).stem}, {'no privacy' if off else f'ε = {outlook.epsilon:g}'}: {outlook.gain:.2f}"
        )
        dash = _DASHES[schemas.index(outlook.schema) % len(_DASHES)]
        axis.plot(expected.marks, outlook.curve, color=colour, linestyle=dash, label=label)
        axis.fill_between(expected.marks, outlook.curve_low, outlook.curve_high, color=colour, alpha=0.15, linewidth=0)
    axis.axhline(0.0, color=_BLACK, linewidth=0.8)
    lowest = min(min(outlook.curve_low) for outlook in expected.outlooks)
    axis.set(xscale="log", xlabel="decisions", ylabel="gain until then (random arms 0, best arms 1)")
    axis.set(xlim=(expected.marks[0], expected.marks[-1]), ylim=(max(-0.5, min(-0.05, 1.1 * lowest)), 1.0))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    bests = " and ".join(f"{rate:.1%}" for rate in dict.fromkeys(outlook.best_rate for outlook in expected.outlooks))
    axis.set_title(f"Random arms earn {expected.assumptions.random_rate:.1%}, the best ones {bests}")
    _legend(axis, [outlook.curve[-1] for outlook in expected.outlooks])
    _save(figure, path)


class Bars(NamedTuple):
    """Mean rewards of policies and of fixed choices: label, value, spread and standard error of each."""

    axis_title: str
    learned: Sequence[tuple[str, float, float, float]]
    alone: Sequence[tuple[str, float, float, float]]


def bars_of_values(
    learned: Sequence[tuple[str, float, float, float]], alone: Sequence[tuple[str, float, float, float]], path: Path
) -> None:
    """Mean rewards of policies and, below a rule, of fixed choices: label, value, spread and standard error of each.

    Thin lines are 95% intervals by the standard error, thick ones the standard deviation from order to order.
    """
    title = "mean reward, with its 95% sampling interval (thin) and its spread over orders (thick)"
    bars_beside([Bars(title, learned, alone)], path)


def bars_beside(panels: Sequence[Bars], path: Path, title: str = "") -> None:
    """Mean rewards, one panel for each way to know them; all panels have equal labels."""
    count = len(panels[0].learned) + len(panels[0].alone)
    size = (2.2 + 5.4 * len(panels), 0.42 * count + 1.3)
    figure, axes = plt.subplots(1, len(panels), figsize=size, squeeze=False, sharey=True, layout="constrained")
    for axis, panel in zip(axes[0], panels, strict=True):
        _draw_bars(axis, panel)
    axes[0][0].invert_yaxis()
    if title:
        figure.suptitle(title)
    _save(figure, path)


def _draw_bars(axis: Axes, panel: Bars) -> None:
    bars = [*panel.learned, *panel.alone]
    axis.grid(True, axis="x", color="#dddddd", linewidth=0.6)
    axis.spines[["top", "right", "left"]].set_visible(False)
    for place, (_, value, spread, error) in enumerate(bars):
        colour = _RED if place < len(panel.learned) else _GREY
        axis.plot([value - 1.96 * error, value + 1.96 * error], [place, place], color=colour, linewidth=1.2)
        if math.isfinite(spread):
            axis.plot([value - spread, value + spread], [place, place], color=colour, linewidth=5.0, alpha=0.5)
        axis.plot([value], [place], color=colour, marker="o", markersize=6)
    if panel.learned and panel.alone:
        axis.axhline(len(panel.learned) - 0.5, color=_BLACK, linewidth=0.6)
    axis.set_yticks(range(len(bars)), [bar[0] for bar in bars])
    axis.set_xlabel(panel.axis_title)


def cost(rows: Sequence[Row], path: Path) -> None:
    """Microseconds per round against dimension and against horizon, as far as they were varied."""
    chosen = looks([row["policy"] for row in rows])
    panels = [pair for pair in (("dim", "horizon"), ("horizon", "dim")) if len({row[pair[0]] for row in rows}) > 1]
    panels = panels or [("dim", "horizon")]
    figure, axes = _sheet(len(panels))
    for axis, (key, other) in zip(axes, panels, strict=True):
        for policy, look in chosen.items():
            _draw_cost(axis, [row for row in rows if row["policy"] == policy], key, look)
        fixed = sorted({row[other] for row in rows})
        axis.set(xscale="log", yscale="log", xlabel={"dim": "dimension", "horizon": "horizon"}[key])
        axis.set_title(f"mean over {other} {', '.join(f'{value:g}' for value in fixed)}", fontsize=10)
        ticks = sorted({row[key] for row in rows})
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes[0].set_ylabel("microseconds per round of the policy")
    _plain_log_ticks(axes[0])
    _legend(axes[-1], [max(row["us_per_round"] for row in rows if row["policy"] == policy) for policy in chosen])
    _save(figure, path)


def _draw_cost(axis: Axes, rows: Sequence[Row], key: str, look: Look) -> None:
    values = sorted({row[key] for row in rows})
    groups = [[row["us_per_round"] for row in rows if row[key] == value] for value in values]
    means = [sum(group) / len(group) for group in groups]
    axis.plot(values, means, color=look.colour, marker=look.marker, linewidth=1.6, label=rows[0]["policy"])


def _sheet(panels: int) -> tuple[Figure, list[Axes]]:
    figure, axes = plt.subplots(1, panels, figsize=(4.4 * panels + 3.2, 4.6), squeeze=False, sharey=True)
    for axis in axes[0]:
        axis.grid(True, color="#dddddd", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, list(axes[0])


def _legend(axis: Axes, order: Sequence[float]) -> None:
    """Put the legend right of the data, highest curve first; ``order`` holds the last value of each."""
    handles, labels = axis.get_legend_handles_labels()
    ranked = sorted(range(len(labels)), key=lambda position: -order[position])
    axis.legend(
        [handles[position] for position in ranked],
        [labels[position] for position in ranked],
        loc="center left",
        bbox_to_anchor=(1.02, 0.5),
        frameon=False,
        handlelength=4.5,
        fontsize=8 if len(labels) > 14 else 9,
    )


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    plt.close(figure)
