"""The command line.  Nothing heavy is imported before a command needs it."""

from __future__ import annotations


def main() -> None:
    """Entry point of the console script."""
    from tacit.cli.app import app

    app()
