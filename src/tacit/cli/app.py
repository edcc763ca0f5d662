"""`tacit`: all commands in one place."""

from __future__ import annotations

from typing import Annotated

import typer

from tacit._version import __version__
from tacit.cli import (
    audit,
    bench,
    calibrate,
    keys,
    plan,
    policies,
    replay,
    reproduce,
    schema,
    serve,
    simulate,
    stores,
    study,
)
from tacit.cli.shared import FriendlyGroup

app = typer.Typer(
    name="tacit",
    cls=FriendlyGroup,
    help="Contextual bandits that learn from people without exposing them. Start with: tacit demo",
    no_args_is_help=True,
    rich_markup_mode=None,  # formatted help would import most of rich
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tacit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""


app.command("demo")(reproduce.demo)
app.command("simulate")(simulate.simulate)
app.command("plan")(plan.plan)
app.command("schema")(schema.schema)
app.command("replay")(replay.replay)
app.command("study")(study.study)
app.command("reproduce")(reproduce.reproduce)
app.command("policies")(policies.policies)
app.command("audit")(audit.audit)
app.command("serve")(serve.serve)
app.command("backup")(stores.backup)
app.command("restore")(stores.restore)
app.command("adopt")(stores.adopt)
app.add_typer(calibrate.app, name="calibrate")
app.add_typer(bench.app, name="bench")
app.add_typer(keys.app, name="keys")
