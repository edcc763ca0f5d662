"""Tables of results: one form, shown in a terminal or written as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit.experiments.runner import Row

if TYPE_CHECKING:
    from rich.table import Table as RichTable


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

    def rich(self) -> RichTable:
        """For a terminal, without its title and notes."""
        from rich import box
        from rich.table import Table as RichTable

        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        for position, column in enumerate(self.columns):
            text = position < self.labels
            table.add_column(column, justify="left" if text else "right", no_wrap=position == 0 or not text)
        for position, cells in enumerate(self.rows):
            table.add_row(*cells, end_section=position in self.rules)
        return table

    def markdown(self) -> str:
        """As Markdown, with a trailing newline."""
        marks = [":---" if position < self.labels else "---:" for position in range(len(self.columns))]
        heads = [column.replace("\n", " ") for column in self.columns]
        lines = [_line(heads), _line(marks), *(_line(cells) for cells in self.rows)]
        notes = [f"\n{note}" for note in self.notes]
        return "\n".join([f"**{self.title}**", "", *lines, *notes]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def number(value: float) -> str:
    """Four digits or so, without an exponent."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def mean_and_error(row: Row) -> str:
    """Mean regret and its standard error to the same digit; a single run has no error."""
    mean, error = row["regret_mean"], row["regret_se"]
    digits = 0 if abs(mean) >= 100 else 1
    return f"{mean:.{digits}f}" if row["runs"] == 1 else f"{mean:.{digits}f} ± {error:.{digits}f}"


def epsilon_text(value: float | str | None) -> str:
    """The privacy parameter as text; a dash for policies without privacy."""
    return "-" if value is None else f"{float(value):g}"


def simulation(rows: Sequence[Row]) -> Table:
    """What `tacit simulate` prints."""
    cells = [
        (
            _name(row),
            epsilon_text(row["epsilon"]),
            mean_and_error(row),
            _spent(row["epsilon_spent"]),
            str(row["runs"]),
            number(row["us_per_round"]),
        )
        for row in rows
    ]
    columns = ("policy", "epsilon", "regret", "spent", "runs", "us/round")
    return Table(_setting(rows), columns, tuple(cells), notes=_caveats(rows))


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
        f"S = {row['theta_norm']:g}, contexts {row['contexts']}{delta}"
    )


def _caveats(rows: Sequence[Row]) -> tuple[str, ...]:
    if any(row["epsilon"] == "inf" for row in rows):
        return ("epsilon inf: noise is off, and there is no privacy.",)
    return ()
