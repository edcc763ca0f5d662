"""`python -m benchmarks.serve`: a short form of the measurement, and what it says when it cannot be made."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.postgres_server import database, postgres

pytestmark = pytest.mark.slow

__all__ = ["database", "postgres"]
ROOT = Path(__file__).parents[2]
SHORT = shlex.split("-m benchmarks.serve --seconds 0.5 --repeats 1")
"""The command as it is typed: run, and not imported."""
PAIRS = {
    "connections",
    "pairs_per_second",
    "p50_ms",
    "p99_ms",
    "decision_p50_ms",
    "decision_p99_ms",
    "reward_p50_ms",
    "reward_p99_ms",
    "cpu_ms_per_pair",
    "echo_pairs_per_second",
    "echo_p99_ms",
    "echo_cpu_ms_per_pair",
    "share_of_echo",
    "fdatasyncs_per_second",
}


def serve(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, *SHORT, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_rows_and_tables_of_a_short_form(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    shown = serve("--connections", "1", "3", "--batch", "4", "--json", str(file))
    one, three, batch = json.loads(file.read_text())
    assert set(one) == set(three) == PAIRS
    assert (one["connections"], three["connections"], batch["batch"]) == (1, 3, 4)
    assert min(row[name] for row in (one, three) for name in PAIRS if "cpu" not in name) > 0.0
    assert one["share_of_echo"] == pytest.approx(one["pairs_per_second"] / one["echo_pairs_per_second"])
    for row in (one, three):
        assert row["p50_ms"] >= max(row["decision_p50_ms"], row["reward_p50_ms"])
        assert row["p50_ms"] <= row["p99_ms"]
        assert min(row["cpu_ms_per_pair"], row["echo_cpu_ms_per_pair"]) >= 0.0
    assert batch["decisions_per_second"] > 0.0
    assert "stream-glm, d = 5, K = 20, SQLite" in shown.stdout
    assert f"{three['pairs_per_second']:,.0f}" in shown.stdout
    assert f"{batch['decisions_per_second']:,.0f}" in shown.stdout
    assert "5/5" in shown.stderr


def test_on_a_database_that_is_empty(database: str) -> None:
    shown = serve("--connections", "2", "--batch", "0", "--database", database, "--json", "-")
    (row,) = json.loads(shown.stdout)
    assert row["pairs_per_second"] > 0.0
    assert "PostgreSQL" in shown.stderr


def test_a_server_that_fails_is_told_of_without_a_traceback() -> None:
    said = serve("--database", "postgresql://me:secret@127.0.0.1:1/x", code=1).stderr
    words = " ".join(said.split())
    assert "tacit serve did not start; it ended with exit code 2" in words
    assert "the database x on 127.0.0.1:1 cannot be reached" in words
    assert "secret" not in said


def test_options_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    assert "--connections: invalid int value: '1.5'" in serve("--connections", "1.5", code=2).stderr
    assert "batch at least 0" in serve("--batch", "-1", code=1).stderr
    assert "it is a directory" in serve("--json", str(tmp_path), code=1).stderr
