"""Studies stand beside the right published figures."""

from __future__ import annotations

import pytest

from tacit.experiments import reproduce
from tacit.experiments.reproduce import STUDIES, TABLE1, Line, annotated, demo, table
from tacit.experiments.results import Row, RunResult, row
from tacit.policies.registry import POLICIES


def rows_for(study: reproduce.Study) -> list[Row]:
    return [
        row(experiment, [RunResult([0.0, 10.0 + position], 1.0, None)], 0)
        for position, experiment in enumerate(study.experiments())
    ]


def test_table1_is_quoted_as_printed() -> None:
    assert TABLE1[2.0]["glm-ucb"].regret == 1400.27
    assert TABLE1[2.5]["private-glm 4"].regret == 721.26
    assert TABLE1[3.0]["rs-glinucb"].regret == 200.62
    for column in TABLE1.values():
        private = [column[f"private-glm {epsilon}"].regret for epsilon in (4, 6, 8)]
        assert private == sorted(private, reverse=True)


@pytest.mark.parametrize("name", list(STUDIES))
def test_every_line_has_its_own_row_and_figure(name: str) -> None:
    study = STUDIES[name]()
    told = annotated(study, rows_for(study))
    assert len(told) == len(study.lines) * len(study.settings)
    assert len({entry["regret_mean"] for entry in told}) == len(told)
    for entry in told:
        known = entry["policy"] != "shuffle-glm"  # never published
        assert (entry["published"] is not None) == known == bool(entry["published_source"])
        assert entry["theta_norm"] == study.settings[entry["setting"]]["theta_norm"]


def test_settings_are_the_papers() -> None:
    table1, logistic, probit = (STUDIES[name]() for name in ("table1", "logistic", "probit"))
    assert {e.theta_norm for e in table1.experiments()} == {2.0, 2.5, 3.0}
    assert {(e.link, e.dim, e.arms, e.horizon) for e in table1.experiments()} == {("probit", 3, 20, 5_000)}
    assert {e.epsilon for e in table1.experiments()} == {None, 4, 6, 8}
    assert {(e.link, e.dim, e.arms, e.horizon, e.theta_norm) for e in logistic.experiments()} == {
        ("logistic", 5, 20, 15_000, 3.5)
    }
    assert {(e.link, e.dim, e.arms, e.horizon, e.theta_norm) for e in probit.experiments()} == {
        ("probit", 5, 20, 5_000, 3.0)
    }
    assert {e.delta for e in table1.experiments() if e.epsilon} == {0.02}


def test_missing_policies_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "POLICIES", {name: POLICIES[name] for name in ("joint-glm", "random")})
    study = STUDIES["table1"]()
    assert {line.policy for line in study.lines} == {"joint-glm", "random"}
    assert "gloc" in study.skipped
    assert any("gloc" in note for note in table(study, rows_for(study)).notes)


def test_the_table_shows_ours_beside_the_published_figure() -> None:
    study = demo()
    cells = {line[0]: line[1:] for line in table(study, rows_for(study)).rows}
    position = study.lines.index(Line("joint-glm", 4, "private-glm 4"))
    assert cells["joint-glm ε=4"] == ("721", f"{10.0 + position:.1f}", f"{10.0 + position:.1f}")
    assert cells["joint-glm ε=1"][0] == ""


def test_markdown_has_one_line_for_each_row() -> None:
    study = STUDIES["table1"]()
    shown = table(study, rows_for(study))
    lines = [line for line in shown.markdown().splitlines() if line.startswith("|")]
    assert len(lines) == len(study.lines) + 2
    assert {line.count("|") for line in lines} == {len(shown.columns) + 1}
