"""The command line.  Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import sys

from tacit.errors import MissingExtra
from tacit.extras import install, named_extras


def main() -> None:
    """Run the command that the arguments name; where no command line is installed, say what to install."""
    try:
        with named_extras():
            from tacit.cli.app import app
    except MissingExtra as error:
        what = f"{install('lab')}, or {install('serve')} for the service alone ({error.name} is missing)"
        print(f"tacit: the command line needs further packages: {what}", file=sys.stderr)
        sys.exit(2)
    app()
