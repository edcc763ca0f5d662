"""A service in a process of its own, and visits to its page that notice what a page must not do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, CDPSession, Page

_READS: Final = {"v1/policies", "v1/privacy", "v1/live", "healthz", "readyz"}
_OF_A_POLICY: Final = {"", "privacy", "history", "explanation", "decisions"}

PATIENCE: Final = 120_000.0
"""Milliseconds that something may take on a busy machine."""
ARTICLES: Final[dict[str, Any]] = {
    "format": "tacit.features",
    "version": 1,
    "user": [{"kind": "flag", "name": "<b>member</b>", "weight": 1.0}],
    "arm": [{"kind": "category", "name": "topic", "values": ["news", "sport"], "other": False, "weight": 1.0}],
    "crosses": [["<b>member</b>", "topic"]],
    "per_arm": None,
    "intercept": True,
}
QUESTION: Final[dict[str, Any]] = {"user": {"<b>member</b>": True}, "arms": [{"topic": "news"}, {"topic": "sport"}]}


class RunningService:
    """A service on a folder; ``stop`` and ``start`` end it and begin it again at the same address.

    Its noise is that of the operating system, and may make an estimate 0: what is asserted of the page holds for all.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, 0
        self.url = self.key = ""
        self.start()

    def start(self) -> None:
        """Begin, and wait until it listens."""
        environment = dict(os.environ)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tacit", "serve", "--data", str(self._folder), "--port", str(self._port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        assert self._process.stdout is not None
        line = next((line for line in self._process.stdout if line.startswith("listening on ")), None)
        assert line is not None, "the service ended before it listened"
        self.url = line.split()[-1]
        self._port = urlsplit(self.url).port or 0
        self.key = (self._folder / "admin.key").read_text().strip()

    def stop(self) -> None:
        """Die as after a power cut: nothing is said to those who are connected."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def call(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        """Ask something as an application does."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"{self.url}/v1/{path}", json.dumps(body).encode(), headers=headers, method=method
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def make(self, name: str, **arguments: Any) -> None:
        """Make a small private policy."""
        given = {"policy": "stream-glm", "epsilon": 1.0, "delta": 1e-6, "hold": False} | arguments
        self.call("PUT", f"policies/{name}", given)

    def decide(self, name: str, question: Mapping[str, Any], count: int) -> None:
        """Many decisions at once."""
        self.call("POST", f"policies/{name}/decisions:batch", {"requests": [dict(question)] * count})


class Visit:
    """A visit to the page, with everything that it asked for and complained of."""

    def __init__(self, page: Page, service: RunningService) -> None:
        self.page, self.service = page, service
        self.requested: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requested.append(request.url))
        page.on("console", lambda message: self._noted(message.type, message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.set_default_timeout(PATIENCE)

    def _noted(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def open(self, fragment: str | None = None) -> Page:
        """Open the page, by default with the right key."""
        self.page.goto(f"{self.service.url}/#{f'key={self.service.key}' if fragment is None else fragment}")
        return self.page

    def scrolls_sideways(self) -> bool:
        """Whether anything is wider than the screen."""
        wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        return bool(self.page.evaluate(wide))

    def strangers(self) -> list[str]:
        """Requests to other hosts, and to anything of the service that is not for everybody's eyes."""
        return [url for url in self.requested if not (url.startswith(f"{self.service.url}/") and _expected(url))]

    def nameless(self) -> list[str]:
        """Roles of what can be used or has a meaning of its own, and has no name for those who do not see it."""
        session: CDPSession = self.page.context.new_cdp_session(self.page)
        nodes = session.send("Accessibility.getFullAXTree")["nodes"]
        shown = [node for node in nodes if not node.get("ignored")]
        return [
            node["role"]["value"]
            for node in shown
            if node["role"]["value"] in _NAMED and not node.get("name", {}).get("value", "").strip()
        ]


_NAMED: Final = frozenset(
    [
        *("button", "link", "textbox", "spinbutton", "combobox", "img", "image", "meter", "table", "navigation"),
        *("region", "heading", "columnheader", "rowheader", "DisclosureTriangle", "RootWebArea"),
    ]
)


def _expected(url: str) -> bool:
    """Whether this is a file of the page or a call that shows releases and public counts."""
    path = urlsplit(url).path.lstrip("/")
    if path == "" or path.startswith("static/") or path in _READS:
        return True
    parts = path.split("/")
    if parts[:2] != ["v1", "policies"]:
        return False
    rest = parts[3:]
    return not rest or rest[0] in _OF_A_POLICY


@contextmanager
def visiting(
    browser: Browser,
    service: RunningService,
    *,
    width: int = 1180,
    scheme: Literal["light", "dark"] = "light",
    troubled: bool = False,
) -> Iterator[Visit]:
    """A visit that ends with a look at what it asked for; one that is ``troubled`` may complain of failed requests."""
    context = browser.new_context(
        viewport={"width": width, "height": 740}, color_scheme=scheme, reduced_motion="reduce"
    )
    try:
        visit = Visit(context.new_page(), service)
        yield visit
        allowed = "Failed to load resource" if troubled else "\0"
        assert [text for text in visit.complaints if allowed not in text] == []
        assert visit.strangers() == []
    finally:
        context.close()
