"""`tacit schema`: a schema for the log of an experiment."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.shared import Refused, check_writable, messages, write_json

if TYPE_CHECKING:
    from tacit.evaluation import PublicFacts


def schema(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The log: CSV or Parquet, one line for each user.")],
    *,
    arm: Annotated[str, typer.Option(metavar="COLUMN", help="Which arm a user was given.")],
    leave_out: Annotated[
        str, typer.Option(metavar="COLUMN[,COLUMN...]", help="What is not known before the choice: the reward, ids.")
    ],
    range_: Annotated[
        list[str] | None,
        typer.Option("--range", metavar="COLUMN=LOW,HIGH", help="Values that there can be; may be repeated."),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=A,B,...", help="Values that there can be, of a category; may be repeated."),
    ] = None,
    flag: Annotated[str | None, typer.Option(metavar="COLUMN[,COLUMN...]", help="Columns of 0 and 1.")] = None,
    from_data: Annotated[
        bool, typer.Option("--from-data", help="Read missing ranges and values off the log: not private.")
    ] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to write the schema.")] = None,
) -> None:
    """Propose a schema for a log: every column a field of the user, with parameters of their own for each arm.

    Ranges and values are asked for where none are given.  They must be public: what can occur, not what did.

    \b
    Examples:
      tacit schema trial.csv --arm drug --leave-out cured --range age=18,100 --values sex=f,m --out trial.json
      tacit schema log.parquet --arm message --leave-out click,id --flag subscriber --from-data --out s.json
    """
    from tacit.evaluation import PublicFacts, proposed_schema, read_log, unknown_columns
    from tacit.evaluation.proposals import observed_facts

    check_writable(out)
    log, left_out = read_log(file), _listed(leave_out)
    facts = PublicFacts(_ranges(range_), _values(log, values), _listed(flag))
    missing = unknown_columns(log, arm, facts, left_out)
    if missing and from_data:
        facts = observed_facts(log, missing, facts)
        messages().print(
            f"Read off the log, which is a release that is not private: {', '.join(missing)}. State what can occur "
            "where you can: one person's record may have set a range, or show that a value occurs.",
            style="bold",
        )
    elif missing and sys.stdin.isatty():
        facts = _asked(log, missing, facts)
    elif missing:
        flags = " ".join(f"--{kind} {name}=..." for name, kind in missing.items())
        raise Refused(f"public facts are missing: {flags}. Or --from-data, which is not private")
    found = proposed_schema(log, arm, facts, left_out)
    typer.echo(found.describe(most=12), err=True)
    write_json(found.to_json(), "-" if out is None else str(out))


def _listed(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _pairs(texts: Iterable[str] | None, flag: str) -> dict[str, list[str]]:
    found = {}
    for text in texts or ():
        name, sign, rest = text.partition("=")
        if not sign or not _listed(rest):
            raise Refused(f"{flag} takes COLUMN=..., with values separated by commas, not {text!r}")
        found[name.strip()] = _listed(rest)
    return found


def _ranges(texts: Iterable[str] | None) -> dict[str, tuple[float, float]]:
    return {name: _range(f"--range {name}", ends) for name, ends in _pairs(texts, "--range").items()}


def _range(flag: str, ends: list[str]) -> tuple[float, float]:
    try:
        low, high = map(float, ends)
    except ValueError:
        raise Refused(f"{flag} takes two numbers, such as 18,100, not {','.join(ends)!r}") from None
    return low, high


def _values(log: dict[str, Any], texts: Iterable[str] | None) -> dict[str, list[Any]]:
    """Values as the column has them: numbers in a column of numbers, else text."""
    return {name: _typed(name, log.get(name, []), parts) for name, parts in _pairs(texts, "--values").items()}


def _typed(name: str, column: Any, parts: list[str]) -> list[Any]:
    try:
        return parts if isinstance(column, list) else [json.loads(part) for part in parts]
    except ValueError:
        raise Refused(f"--values {name}: its column holds numbers, and {', '.join(parts)} are not all such") from None


def _asked(log: dict[str, Any], missing: dict[str, str], facts: PublicFacts) -> PublicFacts:
    """Ask for what is missing, column by column."""
    from tacit.evaluation import PublicFacts

    ranges, values = dict(facts.ranges), dict(facts.values)
    typer.echo("What can occur, by what everybody knows; not what did occur in this log.", err=True)
    for name, kind in missing.items():
        if kind == "range":
            answer = typer.prompt(f"{name}: smallest and largest value, LOW,HIGH", err=True)
            ranges[name] = _range(name, _listed(answer))
        else:
            answer = typer.prompt(f"{name}: all values, separated by commas", err=True)
            values[name] = _typed(name, log[name], _listed(answer))
    return PublicFacts(ranges, values, facts.flags)
