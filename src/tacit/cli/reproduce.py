"""`tacit reproduce` and `tacit demo`: settings of the paper, ours beside the published figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit.cli.shared import Engine, Jobs, Json, Runs, Seed, check_writable, messages, show, write_json, write_text

if TYPE_CHECKING:
    from tacit.experiments.reproduce import Study
    from tacit.experiments.results import Row

StudyName = Literal["table1", "logistic", "probit", "all"]


def reproduce(
    study: Annotated[StudyName, typer.Argument(help="Which experiment of the paper.")],
    *,
    runs: Runs = 10,
    seed: Seed = 0,
    jobs: Jobs,
    engine: Engine = "joblib",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where tables, figures and the journal go.")] = Path(
        "tacit-results"
    ),
    json_file: Json = None,
) -> None:
    """Repeat the paper's experiments and print ours beside the published figures.

    Finished runs are kept in DIR/journal.jsonl: after Ctrl-C the same command goes on where it stopped.

    \b
    Examples:
      tacit reproduce table1
      tacit reproduce all --runs 10 --out results
    """
    from tacit.cli import progress
    from tacit.experiments import plots  # noqa: F401 - found out before anything is played
    from tacit.experiments.reproduce import STUDIES, annotated

    check_writable(json_file, out / "journal.jsonl")
    studies = [make() for name, make in STUDIES.items() if study in (name, "all")]
    outcome = progress.run(
        [experiment for chosen in studies for experiment in chosen.experiments()],
        runs=runs,
        seed=seed,
        jobs=jobs,
        engine=engine,
        journal=out / "journal.jsonl",
    )
    rows: list[Row] = []
    for chosen in studies:
        told = annotated(chosen, outcome.rows)
        _report(chosen, told, out, json_file)
        rows += told
    write_json(rows, json_file)
    messages().print(f"Tables, figures and rows are in {out}/")
    outcome.finish()


def _report(study: Study, rows: list[Row], out: Path, json_file: str | None) -> None:
    from tacit.experiments import plots
    from tacit.experiments.reproduce import table

    shown = table(study, rows)
    show(shown, json_file)
    write_text(shown.markdown(), out / f"{study.name}.md")
    write_json(rows, str(out / f"{study.name}.json"))
    panels = [(setting, [row for row in rows if row["setting"] == setting]) for setting in study.settings]
    if len(panels) == 1:
        panels = [(study.title.replace(": cumulative regret", ""), rows)]
    if rows:
        plots.curves(panels, out / f"{study.name}.png")


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
    show(studies.table(study, rows), json_file, rows)
    if rows:
        plots.price_of_privacy(rows, studies.published_private(study), plot)
        messages().print(f"Figure: {plot.resolve()}")
    outcome.finish()
