"""What the commands share: consoles, errors without tracebacks, lists of values, and files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tacit.errors import TacitError
from tacit.experiments.engines import EngineName
from tacit.extras import named_extras

if TYPE_CHECKING:
    from rich.console import Console

    from tacit.experiments.tables import Table

CONTEXTS = "ball,fixed,shift,assouad"
"""The package's own kinds of contexts: known without an import of anything heavy."""
INTERRUPTED = 130
_PIPE_WIDTH = 180


class Refused(typer.BadParameter):
    """A value that cannot be used: usage, message, exit code 2."""

    def format_message(self) -> str:
        """The message alone: it names the flag itself."""
        return self.message


class FriendlyGroup(TyperGroup):
    """Turns the package's errors into a message and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            with named_extras():
                return super().invoke(ctx)
        except TacitError as error:
            raise Refused(str(error)) from error
        except OSError as error:
            if error.filename is None:
                raise
            raise Refused(f"{error.filename}: {error.strerror}; give another path") from error


def _console(stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else _PIPE_WIDTH, highlight=False)


def messages() -> Console:
    """Return the console of standard error, for progress and notes."""
    return _console(stderr=True)


def results(json_file: str | None = None) -> Console:
    """Return the console for tables: standard output, unless JSON goes there."""
    return _console(stderr=json_file == "-")


def show(table: Table, json_file: str | None = None, data: Any = None) -> None:
    """Print a table with its title and notes, and write what it was made of as JSON where that was asked for."""
    console = results(json_file)
    console.print(f"\n{table.title}", style="bold")
    console.print(table.rich(console.width))
    for note in table.notes:
        console.print(note, style="dim")
    if data is not None:
        write_json(data, json_file)


def write_json(data: Any, target: str | None) -> None:
    """Write JSON to a file, or to standard output for ``-``; do nothing without a target."""
    if target is None:
        return
    text = json.dumps(data, indent=1, allow_nan=False)
    if target == "-":
        typer.echo(text)
    else:
        write_text(text + "\n", Path(target))


def write_text(text: str, path: Path) -> None:
    """Write a file, with its directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def check_writable(*targets: str | Path | None, figure: Path | None = None) -> None:
    """Refuse what cannot be written, and a figure that cannot be drawn, before hours are spent on it."""
    if figure is not None:
        import matplotlib  # noqa: F401 - found out before anything is begun
    for target in (*targets, figure):
        if target is None or str(target) == "-":
            continue
        path = Path(target)
        if path.is_dir():
            raise Refused(f"cannot write {path}: it is a directory; give a file name")
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise Refused(f"cannot write {path}: no permission; give another path")


def names(text: str, flag: str, known: Sequence[str]) -> list[str]:
    """Read comma-separated names, each once; refuse unknown ones."""
    found = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = [name for name in found if name not in known]
    if unknown or not found:
        what = f"unknown: {', '.join(unknown)}" if unknown else "no name given"
        raise Refused(f"{flag}: {what}; choose from {', '.join(known)}")
    return found


def load(modules: Iterable[str] | None) -> tuple[str, ...]:
    """Import the modules of ``--module`` and return their names."""
    from tacit.extensions import load_modules

    return tuple(module.name for module in load_modules(dict.fromkeys(modules or ())))


def known_policies() -> list[str]:
    """Every policy, those of modules that were loaded included."""
    from tacit.policies.registry import policy_names

    return list(policy_names())


def chosen_policies(text: str | None, flag: str, default: Sequence[str] | None = None) -> list[str]:
    """Read a comma-separated list of policies; without one return ``default``, or all that are known."""
    return names(text, flag, known_policies()) if text is not None else list(default or known_policies())


def chosen_links(text: str, flag: str) -> list[str]:
    """Read a comma-separated list of links."""
    from tacit.glm.links import LINKS

    return names(text, flag, list(LINKS))


def chosen_contexts(text: str, flag: str) -> list[str]:
    """Read a comma-separated list of kinds of contexts."""
    from tacit.environments import ENVIRONMENTS

    return names(text, flag, list(ENVIRONMENTS))


def chosen_rewards(text: str, flag: str) -> str:
    """Read the name of one kind of arrivals."""
    from tacit.environments import ARRIVALS

    return one(names(text, flag, list(ARRIVALS)), flag)


def one(found: Sequence[str], flag: str) -> str:
    """Return the only name; refuse several."""
    if len(found) != 1:
        raise Refused(f"{flag} takes one name, not {len(found)}: {', '.join(found)}")
    return found[0]


def option_names(policy: str) -> list[str]:
    """The fields that a policy's configuration has beyond those of every policy."""
    from tacit.policies.config import PrivateConfig

    common = {field.name for field in fields(PrivateConfig)}
    return [name for name in field_names(policy) if name not in common]


def field_names(policy: str) -> list[str]:
    """All fields of a policy's configuration."""
    from tacit.policies.registry import policy_class

    return [field.name for field in fields(policy_class(policy).config_type)]


def options_of(
    policies: Iterable[str], texts: Iterable[str] | None, own_flags: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Read ``--option`` and say for each policy which options it gets.

    Parameters
    ----------
    policies : iterable of str
        The policies that were chosen.
    texts : iterable of str, optional
        ``KEY=VALUE`` for all policies that know KEY, or ``NAME:KEY=VALUE`` for one, which goes first.  Values are read
        as JSON where they can be.
    own_flags : mapping
        Flags of the command that stand for a key, by that key.

    Returns
    -------
    dict
        Keys and values for each policy, by its name.
    """
    # A schema does not fit into an option.
    known = {name: sorted(set(field_names(name)) - {*own_flags, "features"}) for name in policies}
    shared: dict[str, dict[str, Any]] = {name: {} for name in known}
    own: dict[str, dict[str, Any]] = {name: {} for name in known}
    for text in texts or ():
        target, sign, value = text.partition("=")
        name, colon, key = target.rpartition(":")
        if not sign or not key or (colon and not name):
            raise Refused(f"--option takes KEY=VALUE or NAME:KEY=VALUE, such as factorization=tree, not {text!r}")
        if key in own_flags:
            raise Refused(f"--option {target}: use {own_flags[key]}")
        if name and name not in known:
            raise Refused(f"--option {target}: {name} is not among the chosen policies {', '.join(known)}")
        asked = [name] if name else list(known)
        takers = [taker for taker in asked if key in known[taker]]
        if not takers:
            what = f"{name} does not know it. Its" if name else "no chosen policy knows it. Their"
            offer = "; ".join(f"{each}: {', '.join(known[each]) or 'none'}" for each in asked)
            raise Refused(f"--option {target}: {what} options are {offer}")
        for taker in takers:
            (own if name else shared)[taker][key] = _value(value)
    return {name: shared[name] | own[name] for name in known}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def numbers(text: str, flag: str) -> list[float]:
    """Read comma-separated positive numbers; ``inf`` is one."""
    try:
        found = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = []
    if not found or not all(value > 0.0 for value in found):
        raise Refused(f"{flag} takes positive numbers separated by commas, such as 1,4,8 or inf, not {text!r}")
    return list(dict.fromkeys(found))


def integers(text: str, flag: str) -> list[int]:
    """Read comma-separated positive integers."""
    values = numbers(text, flag)
    if not all(value.is_integer() for value in values):
        raise Refused(f"{flag} takes whole numbers separated by commas, such as 3,5,10, not {text!r}")
    return [int(value) for value in values]


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Runs = Annotated[int, typer.Option(min=1, help="Runs of each policy, each with its own instance.")]
Seed = Annotated[int, typer.Option(min=0, help="Same seed, same rows, with any number of jobs.")]
Jobs = Annotated[int, typer.Option(min=1, default_factory=cores, show_default="all cores", help="Processes at work.")]
Engine = Annotated[EngineName, typer.Option(help="Where runs go: this machine, or a Ray cluster (the extra ray).")]
Json = Annotated[str | None, typer.Option("--json", metavar="FILE", help="Write JSON; - for standard output.")]
Link = Annotated[str, typer.Option(metavar="LINK", help="logistic, probit, identity, log, or one of your own.")]
Module = Annotated[
    list[str] | None, typer.Option(metavar="NAME|FILE.py", help="Your policies, links, environments; may be repeated.")
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="[NAME:]KEY=VALUE", help="For the policy NAME, or all that know KEY; may be repeated."
    ),
]
Journal = Annotated[Path | None, typer.Option(metavar="FILE", help="Finished runs, to go on after Ctrl-C.")]
ThetaBound = Annotated[
    float | None, typer.Option(help="Bound on it that policies are told.", show_default="the length itself")
]
BaseRate = Annotated[
    float | None,
    typer.Option(metavar="P", help="Mean reward at score 0, which policies are told.", show_default="the link's"),
]
Rewards = Annotated[str, typer.Option(metavar="KIND", help="How rewards come: now, late, held, or one of your own.")]
SchemaFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Simulated users of a schema: a JSON file, or articles, patients, shops."),
]
Delta = Annotated[float, typer.Option(help="Privacy delta, between 0 and 1.")]
