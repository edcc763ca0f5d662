"""Studies in a short form: what policies earn in real trials, by an outcome model and by the log."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.errors import InvalidInput
from tacit.experiments import runner
from tacit.studies import STUDIES_OF_TRIALS, StudyAnswer, StudyLine, StudyQuestion, play_study
from tacit.studies.playing import ALONE, BEST
from tacit.studies.telling import sentences, table

SHORT = StudyQuestion(policies=("stream-glm", "random"), epsilons=(8.0,), runs=2, orders=1)


@pytest.fixture(scope="module", params=list(STUDIES_OF_TRIALS))
def answer(request: pytest.FixtureRequest) -> StudyAnswer:
    return play_study(STUDIES_OF_TRIALS[request.param], SHORT)


def line_of(answer: StudyAnswer, name: str, alone: bool = False) -> StudyLine:
    (found,) = [line for line in answer.learned if line.name == name and (line.sees == ALONE) == alone]
    return found


def test_gains_are_shares_of_what_the_best_arms_earn_over_random_ones(answer: StudyAnswer) -> None:
    people = answer.study.people
    fixed = {line.name: line for line in answer.fixed}
    assert (fixed["random arms"].gain, fixed[BEST].gain) == (0.0, 1.0)
    for line in (*answer.fixed, *answer.learned):
        assert line.value == pytest.approx(people.random_value + line.gain * (people.best_value - people.random_value))
        assert line.gain <= 1.0
    assert abs(line_of(answer, "random").gain) < 4.0 * 0.02 / (people.best_value - people.random_value)


def test_private_policies_learn_in_every_trial(answer: StudyAnswer) -> None:
    """By two standard errors; where one arm is of no use, the arm alone teaches nothing."""
    learned = line_of(answer, "stream-glm eps=8")
    assert learned.gain > 0.15
    assert learned.log_value > 0.0
    assert learned.learned > 200
    alone = line_of(answer, "stream-glm eps=8", alone=True)
    assert (alone.gain > 0.15) == (answer.study.name != "penbased")


def test_values_of_random_arms_agree_with_the_log(answer: StudyAnswer) -> None:
    line = line_of(answer, "random")
    assert abs(line.log_value - answer.study.people.random_value) < 4.0 * line.log_error


def test_what_is_told(answer: StudyAnswer) -> None:
    told = " ".join(sentences(answer))
    assert "Randomised:" in told
    assert "of the gain" in told
    assert ("Too few data" in told) or ("tells every policy" in told)
    shown = table(answer)
    assert len(shown.rows) == len(answer.study.arms) + 2 + 4
    assert {len(row) for row in shown.rows} == {len(shown.columns)}
    assert any("(mean reward - that of random arms)" in note for note in shown.notes)


def test_policies_that_the_log_cannot_tell_from_random_arms_are_named() -> None:
    def line(name: str, sees: str, log_value: float, log_error: float) -> StudyLine:
        return StudyLine(name, sees, 0.5, 0.0, 0.0, 0.0, 0.0, log_value, 0.0, log_error, 100.0)

    study = STUDIES_OF_TRIALS["actg175"]
    fixed = [line(name, "", 0.5, 0.02) for name in (*study.arms, "random arms", BEST)]
    unclear, clear = line("weak", "28 features", 0.55, 0.02), line("strong", "28 features", 0.60, 0.02)
    (found,) = [text for text in sentences(StudyAnswer(study, SHORT, (*fixed,), (unclear, clear))) if "Too few" in text]
    assert "weak (0.550 ± 0.020, from 100 lines)" in found
    assert "strong" not in found
    told = sentences(StudyAnswer(study, SHORT, (*fixed,), (clear,)))
    assert "The log tells every policy from random arms." in told
    unplayed = sentences(StudyAnswer(study, StudyQuestion(orders=0), (*fixed,), (unclear,)))
    assert not [text for text in unplayed if "Too few" in text]


def test_a_question_without_runs_is_refused() -> None:
    with pytest.raises(InvalidInput, match="runs"):
        StudyQuestion(runs=0)
    with pytest.raises(InvalidInput, match="orders"):
        StudyQuestion(orders=-1)
    with pytest.raises(InvalidInput, match="decisions"):
        StudyQuestion(decisions=0)


def tacit(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["study", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_a_study_on_the_command_line(tmp_path: Path) -> None:
    target, picture = tmp_path / "rows.json", tmp_path / "study.png"
    arguments = ["actg175", "--policy", "random", "--runs", "2", "--orders", "1", "--jobs", "2"]
    shown = tacit(*arguments, "--plot", str(picture), "--json", str(target))
    assert "Randomised: Patients" in shown.stdout
    assert "Figure:" in shown.stderr
    assert picture.stat().st_size > 10_000
    (found,) = json.loads(target.read_text())
    assert (found["study"], found["people"], found["dim"]) == ("actg175", 2_139, 28)
    assert [line["sees"] for line in found["lines"] if line["name"] == "random"] == ["28 features", ALONE]
    assert all(line["log_value"] is not None for line in found["lines"] if line["name"] != BEST)


def test_all_studies_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["all", "--policy", "random", "--runs", "1", "--orders", "0", "--decisions", "50", "--jobs", "1"]
    rows = json.loads(tacit(*arguments, "--json", "-").stdout)
    assert [row["study"] for row in rows] == list(STUDIES_OF_TRIALS)
    assert all(row["decisions"] == 50 for row in rows)
    assert sorted(path.name for path in tmp_path.glob("*.png")) == sorted(
        f"tacit-study-{name}.png" for name in STUDIES_OF_TRIALS
    )


def test_ctrl_c_leaves_with_its_exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_: Any, **__: Any) -> list[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_once", interrupted)
    arguments = ["actg175", "--policy", "random", "--runs", "1", "--orders", "0", "--jobs", "1"]
    assert "Interrupted" in tacit(*arguments, "--plot", str(tmp_path / "study.png"), code=130).stderr
    assert not list(tmp_path.iterdir())


def test_bad_values_are_refused_before_anything_is_played() -> None:
    for arguments, why in (
        (["--policy", "none"], "--policy: unknown"),
        (["--epsilon", "0"], "positive numbers"),
        (["--delta", "2"], "delta"),
    ):
        assert why in tacit("actg175", *arguments, code=2).stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "runs", "least", "alone"),
    [("actg175", 40, 0.57, 0.68), ("thornton", 10, 0.70, None)],
)
def test_gains_at_epsilon_1(name: str, runs: int, least: float, alone: float | None) -> None:
    """A short form of the guide's table, which has 400 runs, and 20,000 decisions too."""
    asked = StudyQuestion(("stream-glm",), (1.0,), runs=runs, orders=0)
    found = play_study(STUDIES_OF_TRIALS[name], asked)
    assert line_of(found, "stream-glm eps=1").gain >= least
    assert line_of(found, "stream-glm eps=1", alone=True).gain >= (alone or -math.inf)
