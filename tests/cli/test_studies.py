"""`tacit reproduce`, `demo`, `calibrate` and `bench`, at small horizons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.experiments import reproduce, runner
from tacit.experiments.reproduce import TABLE1, Line, Study
from tacit.experiments.results import RunResult
from tacit.policies.private_policy import PrivatePolicy
from tacit.policies.registry import make_policy

PNG = b"\x89PNG"


def tacit(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result


def small_study(name: str) -> Study:
    dim = 2 + ["table1", "logistic", "probit", "demo"].index(name)
    common = {"link": "probit", "dim": dim, "arms": 3, "horizon": 60}
    settings = {f"S={norm:g}, κ≈1": common | {"theta_norm": norm} for norm in (2.0, 3.0)}
    figures = dict(zip(settings, (TABLE1[2.0], TABLE1[3.0]), strict=True))
    return Study(name, f"{name}: cumulative regret", (Line("random"),), settings, figures)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    studies = {name: (lambda name=name: small_study(name)) for name in reproduce.STUDIES}
    monkeypatch.setattr(reproduce, "STUDIES", studies)
    monkeypatch.setattr(reproduce, "demo", lambda: small_study("demo"))


class Counted:
    """run_once that counts, and is interrupted in place of one of the runs."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.count = 0
        self._stop_at = stop_at
        self._original = runner.run_once

    def __call__(self, *arguments: Any) -> RunResult:
        if self.count == self._stop_at:
            raise KeyboardInterrupt
        self.count += 1
        return self._original(*arguments)


@pytest.mark.usefixtures("small")
def test_reproduce_writes_tables_rows_and_figures(tmp_path: Path) -> None:
    command = ["reproduce", "table1", "--runs", "2", "--jobs", "1", "--out", str(tmp_path)]
    shown = tacit(*command, "--json", str(tmp_path / "a.json"))
    assert "2144" in shown.stdout  # published, for random
    assert (tmp_path / "table1.png").read_bytes().startswith(PNG)
    assert "| random | 2144 |" in (tmp_path / "table1.md").read_text()
    rows = json.loads((tmp_path / "table1.json").read_text())
    assert rows == json.loads((tmp_path / "a.json").read_text())
    assert [row["published"] for row in rows] == [2144, 2408]
    assert {row["runs"] for row in rows} == {2}


@pytest.mark.usefixtures("small")
def test_reproduce_goes_on_after_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["reproduce", "all", "--runs", "3", "--jobs", "1", "--out", str(tmp_path)]
    first = Counted(stop_at=2)
    monkeypatch.setattr(runner, "run_once", first)
    shown = tacit(*command, code=130)
    assert "Interrupted" in shown.stderr
    second = Counted()
    second._original = first._original
    monkeypatch.setattr(runner, "run_once", second)
    tacit(*command)
    assert (first.count, second.count) == (2, 3 * 2 * 3 - 2)  # three studies, two settings, three runs
    assert {row["runs"] for row in json.loads((tmp_path / "probit.json").read_text())} == {3}
    third = Counted()
    monkeypatch.setattr(runner, "run_once", third)
    tacit(*command)
    assert third.count == 0


@pytest.mark.usefixtures("small")
def test_demo_prints_a_table_and_draws(tmp_path: Path) -> None:
    figure = tmp_path / "demo.png"
    shown = tacit("demo", "--runs", "2", "--jobs", "1", "--plot", str(figure))
    assert figure.read_bytes().startswith(PNG)
    assert str(figure.resolve()) in shown.stderr
    assert "2144" in shown.stdout


def test_calibrate_joint_states_the_known_scales() -> None:
    shown = tacit("calibrate", "joint", "--epsilon", "4", "--delta", "0.02", "--horizon", "15000", "--json", "-")
    rows = json.loads(shown.stdout)
    streams = {row["factorization"]: row for row in rows if row["column_norm"] is not None}
    assert streams["tree"]["worst_prefix_sd_per_unit"] == pytest.approx(13.96, abs=0.01)
    assert streams["toeplitz"]["worst_prefix_sd_per_unit"] == pytest.approx(4.13, abs=0.01)
    assert streams["geometric"]["worst_prefix_sd_per_unit"] == pytest.approx(2.0, abs=0.01)
    for name, row in streams.items():  # rounding to whole numbers adds one part in 1,000 at most
        assert row["sensitivity"] == pytest.approx(2**0.5, rel=1e-3 if name == "geometric" else 1e-6)
        assert row["noise_sd"] == pytest.approx(row["sensitivity"] * row["column_norm"] / row["mu"], rel=1e-6)
        total = sum(other["mu"] ** 2 for other in rows if other["factorization"] == row["factorization"])
        assert total == pytest.approx(1.61882**2, rel=1e-3)


def test_calibrate_joint_takes_a_base_rate() -> None:
    """Noise is that of the policy which is told the same."""
    setting = ["--policy", "stream-glm", "--horizon", "1000", "--theta-norm", "1.5"]
    plain, shifted = (
        {report["factorization"]: report["noise_sd"] for report in json.loads(shown.stdout)}
        for shown in (
            tacit("calibrate", "joint", *setting, "--json", "-"),
            tacit("calibrate", "joint", *setting, "--base-rate", "0.08", "--json", "-"),
        )
    )
    assert all(shifted[name] != plain[name] for name in plain)
    told: dict[str, Any] = {"dim": 5, "horizon": 1000, "theta_bound": 1.5, "epsilon": 1.0, "delta": 1e-5}
    policy = make_policy("stream-glm", base_rate=0.08, **told)
    assert isinstance(policy, PrivatePolicy)
    assert shifted["geometric"] == pytest.approx(policy._noise_scale, rel=1e-3)
    shown = tacit("calibrate", "joint", *setting, "--base-rate", "0.08")
    assert "base rate 0.08" in shown.stdout + shown.stderr


def test_calibrate_refuses_what_has_no_noise() -> None:
    assert "finite" in tacit("calibrate", "joint", "--epsilon", "inf", code=2).stderr
    assert "joint-glm" in tacit("calibrate", "joint", "--policy", "random", code=2).stderr


def test_calibrate_shuffle_states_message_and_noise() -> None:
    report = json.loads(tacit("calibrate", "shuffle", "--users", "10000", "--dim", "5", "--json", "-").stdout)
    wanted = {
        "bits_per_coordinate",
        "bytes_per_user",
        "noise_sd",
        "central_gaussian_sd",
        "g",
        "b",
        "p",
        "min_users",
        "epsilon_at_80_percent_honest",
    }
    assert wanted <= set(report)
    assert wanted <= set(report["paper"])
    assert report["noise_sd"] < 2 * report["central_gaussian_sd"]


def test_leaderboard_has_a_line_for_each_policy(tmp_path: Path) -> None:
    narrow = ["--policies", "random,ecolog", "--contexts", "ball,assouad", "--dims", "2,3", "--horizon", "80"]
    once = ["--runs", "2", "--jobs", "1", "--json", "-"]
    shown = tacit("bench", "regret", *narrow, *once, "--markdown", str(tmp_path / "board.md"))
    rows = json.loads(shown.stdout)
    cells = {(row["policy"], row["link"], row["dim"], row["contexts"]) for row in rows}
    assert len(cells) == len(rows) == 8 + 4  # ecolog has no probit
    assert {row["arms"] for row in rows if row["contexts"] == "assouad"} == {4, 6}
    lines = [line for line in (tmp_path / "board.md").read_text().splitlines() if line.startswith("| probit")]
    assert len(lines) == 2
    assert all("random" in line and "±" in line for line in lines)
    (told,) = {line.count("|") for line in lines}
    assert told == len(["link", "d", "policy", "ε", "ball", "median", "assouad", "median", "vs best"]) + 1


def test_the_leaderboard_takes_late_rewards() -> None:
    narrow = ["--policies", "random,gloc", "--contexts", "ball,news", "--dims", "5", "--links", "logistic"]
    once = ["--horizon", "60", "--runs", "1", "--jobs", "1", "--rewards", "late", "--json", "-"]
    shown = tacit("bench", "regret", *narrow, *once)
    rows = json.loads(shown.stdout)
    assert [(row["contexts"], row["rewards"], row["arms"]) for row in rows] == [
        *[("ball", "late", 20)] * 2,
        *[("news", "late", 5)] * 2,
    ]
    assert all("gain" in row for row in rows)
    assert "rewards late, 1 runs" in shown.stderr


def test_the_leaderboard_tells_policies_a_bound() -> None:
    narrow = ["--policies", "random", "--contexts", "ball", "--dims", "2", "--links", "probit", "--horizon", "60"]
    shown = tacit("bench", "regret", *narrow, "--theta-bound", "6", "--runs", "1", "--jobs", "1", "--json", "-")
    (row,) = json.loads(shown.stdout)
    assert (row["theta_norm"], row["theta_bound"]) == (3.0, 6.0)
    assert "S = 3 (policies are told 6)" in shown.stderr


def test_the_leaderboard_tells_policies_a_base_rate() -> None:
    narrow = ["--policies", "random", "--contexts", "ball", "--dims", "2", "--links", "logistic", "--horizon", "60"]
    shown = tacit("bench", "regret", *narrow, "--base-rate", "0.08", "--runs", "1", "--jobs", "1", "--json", "-")
    (row,) = json.loads(shown.stdout)
    assert row["base_rate"] == 0.08
    assert "S = 3, base rate 0.08" in shown.stderr


def test_speed_is_measured_and_remembered(tmp_path: Path) -> None:
    history, figure = tmp_path / "speed.jsonl", tmp_path / "speed.png"
    command = ["bench", "speed", "--policies", "random", "--dims", "2,3", "--horizons", "400", "--repeats", "1"]
    first = tacit(*command, "--history", str(history), "--plot", str(figure), "--json", str(tmp_path / "rows.json"))
    assert figure.read_bytes().startswith(PNG)
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["dim"] for row in rows] == [2, 3]
    for row in rows:
        assert row["environment_us"] > 0.0
        assert row["ratio"] == pytest.approx(row["us_per_round"] / row["environment_us"])
        assert row["select_p50_us"] <= row["select_p99_us"]
        assert row["state_bytes"] == 8
    entry = json.loads(history.read_text())
    assert entry["rows"] == rows
    assert entry["commit"]
    assert entry["machine"]["cores"] >= 1
    second = tacit(*command, "--history", str(history))
    assert len(history.read_text().splitlines()) == 2
    before, after = (
        [line.split()[-1] for line in shown.stdout.splitlines() if "random" in line] for shown in (first, second)
    )
    assert before == ["-", "-"]
    assert all(float(ratio) > 0.0 for ratio in after)
