"""The soak in a very short form, and that its verdict sees a leak (``workloads/soak.py`` has the long one)."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from workloads import soak
from workloads.load.connection import Reply
from workloads.load.servers import TacitServer
from workloads.soak_calls import Heard
from workloads.soak_traffic import BODIES, Waits, due_statuses
from workloads.soak_verdict import BOUNDS, Finding, Sample, draw, flatness, snapshots, table, verdict

from tacit.service.http.hot import DECISIONS
from tests.service.parts import Clock

pytestmark = pytest.mark.slow

WAITS = Waits(reward=20.0, memory=30.0)


def made_up(
    count: int = 600, *, memory: float = 0.0, store: float = 0.0, peak: int = 30, files: float = 0.0
) -> list[Sample]:
    """Half an hour in samples of three seconds; ``memory``, ``store`` and ``files`` grow by a share over all of it.

    The store is a sawtooth with a tooth every minute that reaches ``peak`` MB.
    """
    found = []
    for place in range(count):
        share, tooth = place / count, (place % 21) / 21
        size = (5 + (peak - 5) * tooth) * (1.0 + store * share) * 1e6
        resident = 2e8 * (1.0 + memory * share) * (1.0 + 0.004 * (place % 7) / 7)
        descriptors = int(34 * (1.0 + files * share))
        found.append(Sample(3.0 * (place + 1), int(resident), descriptors, 5, int(size), 1800, 1.0, 5.0, 9.0, 4.0))
    return found


def wrong(samples: list[Sample]) -> list[str]:
    return [finding.words.partition(":")[0] for finding in verdict(samples) if not finding.right]


def test_what_is_flat_is_accepted() -> None:
    assert wrong(made_up()) == []
    assert wrong(made_up(memory=-0.2, store=-0.1)) == []
    assert wrong(made_up(count=590)) == []  # the last tooth is cut off


@pytest.mark.parametrize(
    ("growth", "names"),
    [
        ({"memory": 0.15}, ["memory"]),  # 10 MB in ten minutes
        ({"memory": 0.06}, ["memory"]),  # little enough, but without a break
        ({"store": 0.25}, ["store"]),
        ({"files": 0.5}, ["files"]),
        ({"memory": 0.2, "store": 0.3}, ["memory", "store"]),
    ],
)
def test_a_leak_is_rejected(growth: dict[str, float], names: list[str]) -> None:
    assert wrong(made_up(**growth)) == names  # type: ignore[arg-type]


def test_a_store_that_is_never_erased_is_rejected() -> None:
    samples = [sample._replace(store=10_000_000 + 20_000 * place) for place, sample in enumerate(made_up())]
    assert wrong(samples) == ["store", "too short"]


def test_a_step_that_stays_is_rejected_and_one_before_the_second_third_is_not() -> None:
    def stepped(at: int) -> list[Sample]:
        return [
            sample._replace(memory=sample.memory + (place >= at) * 20_000_000) for place, sample in enumerate(made_up())
        ]

    assert wrong(stepped(420)) == ["memory"]
    assert wrong(stepped(180)) == []


def test_a_run_that_is_too_short_says_so() -> None:
    assert wrong(made_up(count=10)) == ["too short"]
    assert wrong(made_up(count=60)) == ["too short"]
    assert snapshots(np.array([1.0, 2.0, 3.0, 1.0, 1.05, 1.0])) == 1


def test_the_words_of_a_finding_have_the_figures() -> None:
    words = flatness(made_up(), BOUNDS[0]).words
    assert words.startswith("memory: 191.")
    assert words.endswith("(may be 3% more)")


def test_the_table_has_as_many_lines_as_anybody_reads(tmp_path: Path) -> None:
    lines = list(table(made_up()))
    assert len(lines) == 31
    assert lines[-1].split()[0] == "1800"
    assert lines[-1].split()[5] == "600"  # requests a second
    draw(made_up(), tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").stat().st_size > 10_000


def test_a_pause_is_seen_while_it_lasts_and_is_that_of_whoever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("workloads.soak_calls.time.perf_counter", clock)
    heard = Heard()
    clock.now += 8.0  # nobody waits
    heard.sent()
    clock.now += 0.5
    heard.answered()
    assert heard.since_last_look()[1] == 0.5
    heard.sent()
    clock.now += 2.0
    assert heard.since_last_look()[1] == 2.0
    clock.now += 1.0
    heard.answered()
    assert heard.since_last_look()[1] == 3.0  # it began before the last look
    assert heard.since_last_look()[1] == 0.0


@pytest.mark.parametrize(
    ("youngest", "oldest", "statuses"),
    [
        (0.0, 0.1, (201,)),
        (19.9, 20.1, (201, 410)),
        (21.0, 22.0, (410,)),
        (29.0, 31.0, (410, 404)),
        (35.5, 36.0, (404,)),
        (10.0, 40.0, (201, 410, 404)),
    ],
)
def test_what_a_reward_may_be_answered_with(youngest: float, oldest: float, statuses: tuple[int, ...]) -> None:
    assert due_statuses(youngest, oldest, WAITS) == statuses


def _something_of_everything(report: soak.Report) -> bool:
    statuses = {status for _, status in report.heard.statuses}
    decisions = min(report.heard.decisions[name] for name in BODIES)
    often = decisions > 10 and len(report.samples) > 3 and report.heard.changes > 1
    return often and {200, 201, 409} <= statuses and len(statuses) > 4


def test_a_soak_of_a_few_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, seconds in enumerate((5.0, 20.0, 60.0)):  # how long it takes until everything happens is the machine's
        plan = soak.Plan(seconds=seconds, rate=200.0, every=0.5, waits=Waits(1.5, 2.5))
        folder = tmp_path / str(number)
        folder.mkdir()
        report = soak.soak(folder, plan)
        wrong = [finding.words for finding in report.findings if not finding.right]
        assert [words for words in wrong if not words.startswith("too short")] == []
        assert report.heard.unexpected == []
        assert not report.right  # nobody can say after a few seconds that it is flat
        if _something_of_everything(report):
            break
    else:
        pytest.fail("too little has happened")
    sample = report.samples[-1]
    assert min(sample.memory, sample.store) > 1e5
    assert sample.threads > 1
    assert 0.0 < sample.p50_ms <= sample.p99_ms <= sample.slowest_ms


def _served(monkeypatch: pytest.MonkeyPatch, decisions: int, requests: int) -> TacitServer:
    """A service that says so."""

    def call(port: int, method: str, path: str, key: str) -> Reply:
        line = f'tacit_decision_requests_total{{route="{DECISIONS}",status="201"}} {requests}.0\n'
        return Reply(200, line.encode() if path == "/metrics" else json.dumps({"decisions": decisions}).encode())

    monkeypatch.setattr(soak, "call", call)
    server = object.__new__(TacitServer)
    server.port, server.data = 1, Path()
    monkeypatch.setattr(TacitServer, "key", "key")
    return server


@pytest.mark.parametrize(
    ("decisions", "requests", "right"), [(7, 14, [True, True]), (8, 14, [False, True]), (7, 13, [True, False])]
)
def test_counts_that_differ_are_found(
    decisions: int, requests: int, right: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard(Counter({(DECISIONS, 201): 14, ("-", 200): 5}), Counter(dict.fromkeys(BODIES, 7)))
    found = soak._counted([_served(monkeypatch, decisions, requests)], "key", heard)
    assert [finding.right for finding in found] == right


@pytest.mark.parametrize("right", [True, False])
def test_the_exit_code_is_the_verdict(right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = soak.Report(made_up(30), Heard(), [Finding(right, "memory: so and so")])
    monkeypatch.setattr(soak, "soak", lambda folder, plan, on_sample: report)
    file = tmp_path / "soak.json"
    assert soak.main(["--minutes", "1", "--json", str(file)]) == (0 if right else 1)
    found = json.loads(file.read_text())
    assert found["right"] is right
    assert len(found["samples"]) == 30


def test_a_service_that_dies_ends_the_soak_with_its_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = soak.sampled

    def killed(pids: list[int], store: int, heard: Heard, seconds: float) -> Sample:
        found = usual(pids, store, heard, seconds)
        os.kill(pids[0], signal.SIGKILL)
        return found

    monkeypatch.setattr(soak, "sampled", killed)
    assert soak.main(["--minutes", "1", "--rate", "100", "--every", "0.5"]) == 1
    assert "the service failed: the server has closed a connection" in capsys.readouterr().out
