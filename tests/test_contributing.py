"""CONTRIBUTING.md works as written: its modules are put into files outside of the package, and used as it says."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
MODULES = {
    name: block
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for name in re.findall(r"\A# (\w+)\.py\n", block)
}
COMMANDS = [
    command
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for command in block.strip().splitlines()
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a researcher works: the modules of the page, and nothing of the package."""
    place = tmp_path_factory.mktemp("research")
    for name, block in MODULES.items():
        (place / f"{name}.py").write_text(block)
    return place


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    own = {"TACIT_STATE_DIR": str(folder / "registry")}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=os.environ | own, capture_output=True, text=True, timeout=500
    )


def test_the_page_has_a_module_of_each_kind() -> None:
    assert set(MODULES) == {"my_greedy", "my_private", "my_link", "my_environment", "my_mechanism", "test_mine"}
    assert all(any(name in command for command in COMMANDS) for name in MODULES)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_work_as_written(command: str, folder: Path) -> None:
    done = run(folder, "-m", *shlex.split(command))
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-1000:]


def test_rows_are_the_same_in_one_process_and_in_several(folder: Path) -> None:
    rows = []
    for jobs in ("1", "2"):
        setting = "--module my_greedy --policy my-greedy --dim 3 --horizon 300 --runs 3 --seed 5 --json rows.json"
        done = run(folder, "-m", "tacit", "simulate", *shlex.split(setting), "--jobs", jobs)
        assert done.returncode == 0, done.stderr[-3000:]
        (row,) = json.loads((folder / "rows.json").read_text())
        rows.append(row["regrets"])
    assert rows[0] == rows[1]
    assert len(rows[0]) == 3


SAVE_AND_LOAD = """
import sys, numpy as np, tacit
import {module}
policy = tacit.make_policy({name!r}, dim=3, horizon=50, seed=1, **{privacy!r})
for _ in range(20):
    policy.update(policy.select(np.eye(3)), 1.0)
fingerprint = policy.fingerprint()
policy.save("state")
again = tacit.load("state")
assert again.fingerprint() == fingerprint
log = []
twin = tacit.restore(again.snapshot())
again.keep_log(log.append)
for _ in range(10):
    again.update(again.select(np.eye(3)), 0.0)
twin.replay(log)
assert len(log) >= 20
assert np.array_equal(twin.state.{field}, again.state.{field})
"""


@pytest.mark.parametrize(
    ("module", "name", "field", "privacy"),
    [
        ("my_greedy", "my-greedy", "theta", {}),
        ("my_private", "my-thompson", "estimate", {"epsilon": 1.0, "delta": 1e-5}),
    ],
)
def test_policies_are_saved_loaded_and_replayed(
    module: str, name: str, field: str, privacy: dict[str, float], folder: Path
) -> None:
    script = SAVE_AND_LOAD.format(module=module, name=name, field=field, privacy=privacy)
    done = run(folder, "-c", script)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_state_whose_module_was_not_imported_says_so(folder: Path) -> None:
    script = """
import my_greedy, tacit
tacit.make_policy("my-greedy", dim=2, seed=1).save("alone")
"""
    assert run(folder, "-c", script).returncode == 0
    done = run(folder, "-c", "import tacit; tacit.load('alone')")
    assert "register" in done.stderr
    assert "my-greedy" in done.stderr


def test_noise_of_two_thirds_in_a_private_policy_of_ones_own_is_found(folder: Path) -> None:
    short = """
    def _plan(self, horizon):
        from dataclasses import replace

        whole = super()._plan(horizon)
        return replace(whole, row_bound=whole.row_bound * 2.0 / 3.0, row_norm=whole.row_norm * 2.0 / 3.0)
"""
    broken = MODULES["my_private"].replace("my-thompson", "my-broken") + short
    (folder / "my_broken.py").write_text(broken)
    done = run(folder, "-m", "tacit", "audit", "my-broken", "--module", "my_broken", "--quick", "--epsilon", "4")
    assert done.returncode == 1
    assert "refuted" in done.stdout


@pytest.mark.parametrize(
    ("module", "call"), [("my_greedy", "'my-greedy'"), ("my_mechanism", "'my-average', period=20")]
)
def test_policies_of_the_page_keep_the_contract(module: str, call: str, folder: Path) -> None:
    before = set(folder.glob("registry/**/*"))
    done = run(folder, "-c", f"import {module}, tacit.testing; tacit.testing.check_policy({call})")
    assert done.returncode == 0, done.stderr[-3000:]
    assert set(folder.glob("registry/**/*")) == before, "checks leave nothing behind"


def test_all_faults_of_a_policy_are_told_at_once(folder: Path) -> None:
    """It counts its choices, draws for itself, and divides by the number of arms but one."""
    faulty = MODULES["my_greedy"].replace('"my-greedy"', '"my-faulty"').replace(
        "    best = (contexts",
        "    state.rewards[()] += 1\n    noise = np.random.default_rng().random() / (contexts.shape[1] // 2)\n"
        "    best = (noise * contexts",
    )  # fmt: skip
    (folder / "my_faulty.py").write_text(faulty)
    done = run(folder, "-W", "error", "-c", "import my_faulty, tacit.testing; tacit.testing.check_policy('my-faulty')")
    told = done.stderr.rpartition("AssertionError: ")[2]
    assert "choose_keeps_the_state: Broken: choose changed the state: ['rewards']" in told
    assert "arm_sets_may_change_in_size: ZeroDivisionError" in told
    assert "corrupt_files_are_refused" not in told


def test_the_private_policy_is_short() -> None:
    code = [line for line in MODULES["my_private"].splitlines() if line.strip()]
    assert len(code) <= 40


def test_steps_that_are_missing_are_explained(folder: Path) -> None:
    forgotten = MODULES["my_greedy"].replace("    _steps = Steps(choose, learn, advance)\n", "")
    (folder / "my_forgotten.py").write_text(forgotten.replace('"my-greedy"', '"my-forgotten"'))
    done = run(folder, "-c", "import my_forgotten, tacit\ntacit.make_policy('my-forgotten', dim=2)")
    assert "_steps = Steps(choose, learn, advance)" in done.stderr


def test_an_error_in_a_step_has_an_ordinary_traceback(folder: Path) -> None:
    wrong = MODULES["my_greedy"].replace("state.moment[:] +=", "state.momentum[:] +=")
    (folder / "my_wrong.py").write_text(wrong.replace('"my-greedy"', '"my-wrong"'))
    script = """
import my_wrong, tacit, numpy as np
policy = tacit.make_policy("my-wrong", dim=2)
policy.update(policy.select(np.eye(2)), 1.0)
"""
    done = run(folder, "-c", script)
    assert "momentum" in done.stderr
    assert "my_wrong.py" in done.stderr
