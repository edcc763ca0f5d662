"""The command line: files, exit codes, errors that say what to change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tacit._version import __version__
from tacit.cli.app import app
from tacit.cli.shared import CONTEXTS
from tacit.environments import ENVIRONMENTS
from tacit.experiments import runner
from tacit.glm.links import LINKS

SMALL = ["--link", "probit", "--dim", "3", "--arms", "5", "--horizon", "150", "--theta-norm", "2", "--jobs", "1"]
FIELDS = {
    "policy",
    "epsilon",
    "delta",
    "link",
    "dim",
    "arms",
    "horizon",
    "theta_norm",
    "contexts",
    "runs",
    "seed",
    "regret_mean",
    "regret_std",
    "regret_se",
    "regret_curve",
    "us_per_round",
    "epsilon_spent",
    "theta_bound",
    "regrets",
    "regret_rounds",
    "regret_median",
}


def tacit(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result


def simulate(*arguments: str, code: int = 0) -> Any:
    return tacit("simulate", "--policy", "random", *SMALL, *arguments, code=code)


def pressing_ctrl_c(after: int) -> Any:
    """A run_once that is interrupted in place of run number ``after``."""
    started = 0
    original = runner.run_once

    def run_once(*arguments: Any) -> Any:
        nonlocal started
        if started == after:
            raise KeyboardInterrupt
        started += 1
        return original(*arguments)

    return run_once


HELPED = """
import sys
from tacit.cli import main
sys.argv = ["tacit", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*sorted(sys.modules), file=sys.stderr)
"""


def test_help_imports_little_and_nothing_heavy() -> None:
    """What makes it take 0.3 seconds on a quiet machine; `rich` draws the help itself."""
    heavy = ("numpy", "scipy", "matplotlib", "rich")
    code = f"import sys, tacit.cli.app; print([name for name in {heavy} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
    done = subprocess.run([sys.executable, "-c", HELPED], check=True, capture_output=True, text=True)
    assert "simulate" in done.stdout
    imported = done.stderr.split()
    assert not {"numpy", "scipy", "matplotlib", "tacit.policies"} & set(imported)
    assert len(imported) < 600


def test_version_and_choices() -> None:
    assert tacit("--version").stdout.strip() == f"tacit {__version__}"
    shown = " ".join(tacit("simulate", "--help").stdout.split())
    assert ", ".join(LINKS) in shown
    assert CONTEXTS.replace(",", ", ") in shown
    assert CONTEXTS.split(",") == list(ENVIRONMENTS)[:4]


@pytest.mark.parametrize(
    "command",
    [
        "demo",
        "simulate",
        "reproduce",
        "policies",
        "calibrate joint",
        "calibrate shuffle",
        "bench regret",
        "bench speed",
    ],
)
def test_every_command_has_help_with_an_example(command: str) -> None:
    assert f"tacit {command}" in tacit(*command.split(), "--help").stdout.partition("Example")[2]


def test_simulate_writes_rows(tmp_path: Path) -> None:
    target = tmp_path / "new" / "rows.json"
    shown = simulate("--runs", "3", "--json", str(target))
    (row,) = json.loads(target.read_text())
    assert set(row) >= FIELDS
    assert (row["policy"], row["runs"], row["horizon"], len(row["regret_curve"])) == ("random", 3, 150, 50)
    assert "random" in shown.stdout
    assert "3/3" in shown.stderr


def test_json_to_standard_output_stands_alone() -> None:
    shown = simulate("--runs", "2", "--json", "-")
    assert json.loads(shown.stdout)[0]["runs"] == 2
    assert "regret" in shown.stderr


def test_simulate_gives_the_same_rows_for_any_number_of_jobs() -> None:
    first, second = (json.loads(simulate("--runs", "3", "--json", "-", "--jobs", jobs).stdout) for jobs in "12")
    for rows in (first, second):
        rows[0].pop("us_per_round")
    assert first == second


def test_private_policies_run_for_each_epsilon() -> None:
    arguments = ["--policy", "joint-glm,random", *SMALL, "--epsilon", "1,inf", "--delta", "0.02", "--runs", "1"]
    rows = json.loads(tacit("simulate", *arguments, "--json", "-").stdout)
    found = [(row["policy"], row["epsilon"]) for row in rows]
    assert found == [("joint-glm", 1.0), ("joint-glm", "inf"), ("random", None)]
    assert 0.0 < rows[0]["epsilon_spent"] <= 1.0
    assert rows[1]["epsilon_spent"] == "inf"


def test_assouad_has_two_arms_for_each_dimension() -> None:
    (row,) = json.loads(simulate("--contexts", "assouad", "--runs", "1", "--json", "-").stdout)
    assert row["arms"] == 6


def test_rewards_may_be_late_and_the_gain_is_shown(tmp_path: Path) -> None:
    target = tmp_path / "rows.json"
    arguments = ["--policy", "greedy-mle,random", *SMALL, "--runs", "2", "--rewards", "late", "--json", str(target)]
    shown = tacit("simulate", *arguments, "--plot", str(tmp_path / "late.png"))
    rows = json.loads(target.read_text())
    assert [row["rewards"] for row in rows] == ["late", "late"]
    assert rows[0]["gain"] == pytest.approx(1.0 - rows[0]["regret_mean"] / rows[1]["regret_mean"])
    assert rows[1]["gain"] == 0.0
    assert "gain" in shown.stdout
    assert "rewards late" in shown.stdout


def test_simulate_draws_a_figure(tmp_path: Path) -> None:
    simulate("--runs", "2", "--plot", str(tmp_path / "curves.png"))
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_ctrl_c_keeps_what_was_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "run_once", pressing_ctrl_c(after=2))
    target = tmp_path / "rows.json"
    shown = simulate("--runs", "5", "--json", str(target), code=130)
    assert json.loads(target.read_text())[0]["runs"] == 2
    assert "2 of 5 runs" in shown.stderr


def test_simulate_goes_on_from_its_journal(tmp_path: Path) -> None:
    journal = tmp_path / "new" / "journal.jsonl"
    first = json.loads(simulate("--runs", "2", "--journal", str(journal), "--json", "-").stdout)[0]
    kept = journal.read_text()
    second = json.loads(simulate("--runs", "3", "--journal", str(journal), "--json", "-").stdout)[0]
    assert second["regrets"][:2] == first["regrets"]
    assert journal.read_text().startswith(kept)
    assert len(journal.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--policy", "thompson"], "joint-glm"),
        (["--policy", ","], "choose from"),
        (["--epsilon", "-1"], "positive numbers"),
        (["--epsilon", "one"], "positive numbers"),
        (["--epsilon", "nan"], "positive numbers"),
        (["--contexts", "moon"], "assouad"),
        (["--contexts", "news"], "news' has dim 5"),
        (["--contexts", "news", "--dim", "5", "--link", "probit"], "logistic link"),
        (["--rewards", "soon"], "choose from now, late, held"),
        (["--policy", "shuffle-glm", "--option", "reward_age=10"], "takes no reward_age"),
        (["--link", "cauchit"], "logistic"),
        (["--contexts", "ball,fixed"], "takes one name"),
        (["--theta-norm", "-2"], "theta_norm must be positive"),
        (["--policy", "greedy-mle", "--theta-bound", "-2"], "theta_bound"),
        (["--option", "theta_bound=2"], "use --theta-bound"),
        (["--option", "base_rate=0.1"], "use --base-rate"),
        (["--base-rate", "1.5"], "base_rate must lie strictly between 0 and 1"),
        (["--module", "no_such_module"], "cannot import the module 'no_such_module': ModuleNotFoundError"),
        (["--horizon", "0"], "horizon"),
        (["--runs", "0"], "runs"),
        (["--jobs", "0"], "jobs"),
        (["--policy", "joint-glm", "--delta", "2"], "delta"),
        (["--option", "colour"], "KEY=VALUE"),
        (["--option", ":colour=red"], "NAME:KEY=VALUE"),
        (["--option", "colour=red"], "no chosen policy knows it"),
        (
            ["--policy", "joint-glm,random", "--option", "joint-glm:colour=red"],
            "joint-glm does not know it. Its options are joint-glm: ",
        ),
        (
            ["--policy", "joint-glm,random", "--option", "stream-glm:period=5"],
            "not among the chosen policies joint-glm",
        ),
        (["--option", "joint-glm:dim=3"], "use --dim"),
        (["--module", "missing.py"], "there is no file missing.py to import"),
        (["--option", "dim=3"], "use --dim"),
        (["--json", "/proc/none/rows.json"], "/proc"),
    ],
)
def test_bad_values_say_what_to_change(arguments: list[str], told: str) -> None:
    shown = simulate("--runs", "1", *arguments, code=2)
    assert told in shown.stderr
    assert "Traceback" not in shown.output


def test_options_go_to_the_policies_that_know_them() -> None:
    arguments = ["--policy", "joint-glm,random", *SMALL, "--option", "factorization=tree", "--runs", "1", "--json", "-"]
    private, uniform = json.loads(tacit("simulate", *arguments).stdout)
    assert private["options"] == {"factorization": "tree"}
    assert uniform["options"] == {}


def test_an_option_that_names_a_policy_reaches_that_one_alone() -> None:
    chosen = ("joint-linucb:factorization=tree", "factorization=toeplitz", "joint-glm:reward_window=50")
    arguments = ["--policy", "joint-glm,joint-linucb", *SMALL, "--runs", "1", "--json", "-"]
    for option in chosen:
        arguments += ["--option", option]
    rows = json.loads(tacit("simulate", *arguments).stdout)
    assert [row["options"] for row in rows] == [
        {"factorization": "toeplitz", "reward_window": 50},
        {"factorization": "tree"},
    ]


def test_the_bound_is_told_apart_from_the_norm() -> None:
    shown = simulate("--runs", "1", "--theta-bound", "4.5", "--json", "-")
    (row,) = json.loads(shown.stdout)
    assert (row["theta_norm"], row["theta_bound"]) == (2.0, 4.5)
    assert "S = 2 (policies are told 4.5)" in shown.stderr
    assert "told" not in simulate("--runs", "1").stdout


def test_policies_are_listed() -> None:
    rows = json.loads(tacit("policies", "--json", "-").stdout)
    found = {row["policy"]: row for row in rows}
    assert found["joint-glm"]["privacy"] == "joint"
    assert found["random"]["privacy"] == "none"
    assert all(row["summary"] and row["links"] for row in rows)
