"""Tables show every figure, also in a terminal of 80 columns."""

from __future__ import annotations

import pytest
from rich.console import Console
from tests.experiments.test_runner import experiment
from tests.experiments.test_speed import measured

from tacit.experiments import leaderboard, speed
from tacit.experiments.reproduce import STUDIES
from tacit.experiments.reproduce import table as study_table
from tacit.experiments.results import Row, RunResult, row
from tacit.experiments.tables import Table, simulation


def results(scale: float) -> list[RunResult]:
    return [RunResult([0.0, scale * factor], 1.0, None) for factor in (1.0, 1.02, 1.4)]


def study() -> Table:
    chosen = STUDIES["table1"]()
    rows = [row(made, results(10.0 * (17 + i)), 0) for i, made in enumerate(chosen.experiments())]
    return study_table(chosen, rows)


def board() -> Table:
    kinds = ["ball", "fixed", "shift", "assouad"]
    policies = ["random", "shuffle-linucb"]
    rows: list[Row] = [
        row(experiment(policy=policy, contexts=kind, epsilon=0.125, delta=0.1), results(50.0 + 7 * i), 0)
        for i, (policy, kind) in enumerate((policy, kind) for policy in policies for kind in kinds)
    ]
    return leaderboard.table(rows, kinds)


def costs() -> Table:
    return speed.table([measured(rounds=262), measured(policy="shuffle-linucb", dim=50)], {})


def simulated() -> Table:
    options = {"factorization": "tree"}
    return simulation([row(experiment(policy="joint-glm", epsilon=4.0, delta=0.1, options=options), results(99.0), 0)])


def gained() -> Table:
    return simulation([entry | {"gain": -0.25} for entry in run_rows()])


def run_rows() -> list[Row]:
    private = {"policy": "joint-glm", "epsilon": 0.125, "delta": 0.1, "rewards": "late"}
    chosen = [experiment(**private, options={"factorization": "tree"}), experiment(rewards="late")]
    return [row(made, results(1234.0), 0) for made in chosen]


@pytest.mark.parametrize("width", [80, 120, 180])
@pytest.mark.parametrize("make", [study, board, costs, simulated, gained])
def test_every_cell_is_shown_whole(make: object, width: int) -> None:
    assert callable(make)
    shown: Table = make()
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(shown.rich(width))
    lines = capture.get().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= width
    text = "\n".join(lines)
    assert "…" not in text
    for cells in shown.rows:
        assert all(cell in text for cell in cells)


def test_medians_stand_beside_means_where_there_is_room_and_below_where_not() -> None:
    heights = {width: study().rich(width).row_count for width in (80, 120)}
    columns = {width: len(study().rich(width).columns) for width in (80, 120)}
    assert heights[80] == heights[120] == len(study().rows)
    assert columns == {80: 7, 120: 10}
    first = study().rows[0]
    assert first[2:4] == ("194 ± 22", "173")  # 170, 173.4 and 238


def test_markdown_has_a_column_for_each_median() -> None:
    text = board().markdown()
    heading = text.splitlines()[2]
    assert heading.startswith("| link | d | policy | ε | ball | median | fixed | median |")
    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {heading.count("|")}


def test_titles_say_how_rewards_come_where_not_at_once() -> None:
    assert "contexts ball, rewards late, delta" in simulation(run_rows()).title
    assert "S = 2, rewards late, 3 runs" in leaderboard.table(run_rows(), ["ball"]).title


def test_what_policies_were_told_is_said_where_it_differs() -> None:
    told = row(experiment(theta_bound=5.0), results(9.0), 0)
    assert "S = 2 (policies are told 5)" in simulation([told]).title
    assert "S = 2, contexts" in simulation([row(experiment(), results(9.0), 0)]).title
