"""Tables of results: one form, shown in a terminal or written as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit.experiments.results import Row

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_WIDEST = 1_000
"""Width of the imagined terminal in which tables are measured."""


@dataclass(frozen=True)
class Table:
    """Cells as text; the first ``labels`` columns are names, the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int = 1
    rules: frozenset[int] = frozenset()
    """Rows after which a terminal draws a line."""
    notes: tuple[str, ...] = ()
    narrow: tuple[tuple[int, ...], ...] = ()
    """Columns that share a column, one below the other, where the terminal is too narrow for all of them."""

    def rich(self, width: int) -> RichTable:
        """Draw the table for a terminal of ``width`` columns, without its title and notes."""
        from rich.console import Console
        from rich.measure import Measurement

        table = self._drawn([(position,) for position in range(len(self.columns))])
        unlimited = Console(width=_WIDEST)
        needed = Measurement.get(unlimited, unlimited.options, table).maximum
        return table if needed <= width or not self.narrow else self._drawn(self.narrow)

    def _drawn(self, groups: Sequence[tuple[int, ...]]) -> RichTable:
        """One column for each group of columns; in a group, all but the first are dim."""
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for number, (first, *others) in enumerate(groups):
            names = [self.columns[first], *(self.columns[position].rpartition("\n")[2] for position in others)]
            text = first < self.labels
            prose = text and number > 0 and any(" " in cells[first] for cells in self.rows)
            table.add_column("\n".join(names), justify="left" if text else "right", no_wrap=not prose)
        for number, cells in enumerate(self.rows):
            drawn = [
                Text.assemble(cells[first], *((f"\n{cells[position]}", "dim") for position in others))
                for first, *others in groups
            ]
            table.add_row(*drawn, end_section=number in self.rules)
        return table

    def markdown(self) -> str:
        """Write the table as Markdown, with a trailing newline."""
        marks = [":---" if position < self.labels else "---:" for position in range(len(self.columns))]
        heads = [" ".join(column.split("\n")) for column in self.columns]
        lines = [_line(heads), _line(marks), *(_line(cells) for cells in self.rows)]
        notes = [f"\n{note}" for note in self.notes]
        return "\n".join([f"**{self.title}**", "", *lines, *notes]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def number(value: float) -> str:
    """Write a number with about four digits and no exponent."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def rounded(count: int) -> str:
    """Write a count to two digits, where simulations do not know more."""
    unit = 10 ** max(0, len(str(count)) - 2)
    return f"{round(count / unit) * unit:,}"


def mean_and_error(row: Row) -> str:
    """Write mean regret and standard error to equally many digits; a single run has no error."""
    mean, error, digits = row["regret_mean"], row["regret_se"], _digits(row)
    return f"{mean:.{digits}f}" if row["runs"] == 1 else f"{mean:.{digits}f} ± {error:.{digits}f}"


def median(row: Row) -> str:
    """Write the median regret to as many digits as the mean."""
    return f"{row['regret_median']:.{_digits(row)}f}"


def _digits(row: Row) -> int:
    return 0 if abs(row["regret_mean"]) >= 100 else 1


def epsilon_text(value: float | str | None) -> str:
    """Write epsilon, or a dash for policies without privacy."""
    return "-" if value is None else f"{float(value):g}"


def simulation(rows: Sequence[Row]) -> Table:
    """Tabulate regret, budget and cost of every row, for `tacit simulate`."""
    gains = any("gain" in row for row in rows)
    cells = [
        (
            _name(row),
            epsilon_text(row["epsilon"]),
            mean_and_error(row),
            median(row),
            *((_gain(row),) if gains else ()),
            _spent(row["epsilon_spent"]),
            str(row["runs"]),
            number(row["us_per_round"]),
        )
        for row in rows
    ]
    columns = ("policy", "epsilon", "regret", "median", *(("gain",) if gains else ()), "spent", "runs", "us/round")
    spent = columns.index("spent")
    narrow = ((0,), (1, spent), (2, 3), *((position,) for position in range(4, len(columns)) if position != spent))
    return Table(_setting(rows), columns, tuple(cells), notes=_notes(rows), narrow=narrow)


def norm_text(row: Row) -> str:
    """Write the length of theta*, and the bound that policies got where it differs."""
    told = "" if row["theta_bound"] == row["theta_norm"] else f" (policies are told {row['theta_bound']:g})"
    return f"S = {row['theta_norm']:g}{told}"


def base_text(row: Row) -> str:
    """Write the base rate where there is one."""
    return f", base rate {row['base_rate']:g}" if "base_rate" in row else ""


def rewards_text(row: Row) -> str:
    """Write the kind of arrivals where rewards do not come at once."""
    return f", rewards {row['rewards']}" if "rewards" in row else ""


def _gain(row: Row) -> str:
    return f"{row['gain']:.2f}" if "gain" in row else "-"


def _name(row: Row) -> str:
    extras = "".join(f" {key}={value}" for key, value in row["options"].items())
    return f"{row['policy']}{extras}"


def _spent(value: float | str | None) -> str:
    return "-" if value is None else f"{float(value):.3g}"


def _setting(rows: Sequence[Row]) -> str:
    if not rows:
        return "Cumulative regret: no run was finished"
    row = rows[0]
    delta = next((f", delta = {row['delta']:g}" for row in rows if row["delta"] is not None), "")
    return (
        f"Cumulative regret: {row['link']}, d = {row['dim']}, K = {row['arms']}, T = {row['horizon']:,}, "
        f"{norm_text(row)}{base_text(row)}, contexts {row['contexts']}{rewards_text(row)}{delta}"
    )


def _notes(rows: Sequence[Row]) -> tuple[str, ...]:
    notes = ["regret: mean and standard error over runs."] if rows else []
    if any("gain" in row for row in rows):
        notes.append("gain: share of what is to be gained over random arms, 1 - regret / regret of random.")
    if any(row["epsilon"] == "inf" for row in rows):
        notes.append("epsilon inf: noise is off, and there is no privacy.")
    return tuple(notes)
