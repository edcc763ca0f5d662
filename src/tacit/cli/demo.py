"""`tacit demo`: what privacy costs, in under a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.shared import Jobs, Json, Runs, Seed, check_writable, messages, show, write_json


def demo(
    *,
    runs: Runs = 3,
    seed: Seed = 0,
    jobs: Jobs,
    plot: Annotated[Path, typer.Option(metavar="FILE.png", help="Where the figure goes.")] = Path("tacit-demo.png"),
    json_file: Json = None,
) -> None:
    """Compare private policies with baselines in a setting of the paper, and draw what privacy costs.

    Probit rewards, d = 3, K = 20 arms, 5,000 users, delta = 0.02: the middle column of the paper's Table 1, at more
    epsilons.

    \b
    Example:
      tacit demo --runs 10
    """
    from tacit.cli import progress
    from tacit.experiments import plots
    from tacit.experiments import reproduce as studies

    check_writable(plot, json_file)
    study = studies.demo()
    outcome = progress.run(study.experiments(), runs=runs, seed=seed, jobs=jobs)
    rows = studies.annotated(study, outcome.rows)
    show(studies.table(study, rows), json_file)
    write_json(rows, json_file)
    if rows:
        plots.price_of_privacy(rows, studies.published_private(study), plot)
        messages().print(f"Figure: {plot.resolve()}")
    outcome.finish()
