"""The tour of docs/guides/serve.md, as it is printed there."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

from tacit.service.http.options import Options

GUIDE = Path(__file__).parent.parent.parent / "docs" / "guides" / "serve.md"


def test_the_tour_with_curl(tmp_path: Path) -> None:
    (tour,) = re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    command = [sys.executable, "-m", "tacit", "serve", "--data", "tacit-data", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        url = service.stdout.readline().split()[-1]
        script = tour.replace("http://127.0.0.1:8470", url)
        assert script != tour
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, capture_output=True, text=True)
        service.send_signal(signal.SIGTERM)
        assert service.wait(120) == 0
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines() if line]
    made, first, again, rewarded, batch, _, privacy, policy = answers
    assert made["name"] == "front-page"
    assert first == again
    assert first["event_id"] == "visit-1"
    assert rewarded
    assert [entry["status"] for entry in batch["decisions"]] == [201, 422]
    assert privacy["target_epsilon"] == 1.0
    assert policy["decisions"] == 2


def test_the_guide_lists_all_options_with_their_defaults() -> None:
    section = GUIDE.read_text().partition("### All options")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", section, flags=re.MULTILINE)
    expected = [(each.name, json.dumps(each.default), each.metadata["about"]) for each in fields(Options)]
    assert listed == expected
