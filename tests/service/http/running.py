"""A service in a process of its own, on a free port, and a caller."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

PATIENCE, END = 120.0, 120.0
"""Seconds for an answer, and for the end of a process: so long that no machine takes them for something to be done."""
STREAM = {"policy": "stream-glm", "dim": 2, "epsilon": 1.0, "delta": 1e-6}
TWO = [[1.0, 0.0], [0.0, 1.0]]
_numbers = itertools.count()


class Running:
    """`tacit serve` on a folder.

    Its noise is that of the operating system: what is asserted of it holds for every noise.
    """

    def __init__(self, folder: Path, **bounds: Any) -> None:
        self.folder, self.bounds = folder, bounds
        self.log = folder.parent / f"{folder.name}-{next(_numbers)}.log"
        config = folder.parent / f"{folder.name}.toml"
        config.write_text("".join(f"{name} = {_toml(value)}\n" for name, value in bounds.items()))
        command = [
            sys.executable,
            "-m",
            "tacit",
            "serve",
            "--data",
            str(folder),
            "--port",
            "0",
            "--config",
            str(config),
        ]
        with self.log.open("w") as words:
            environment = dict(os.environ)
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=words, text=True, env=environment)
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        if not self.line.startswith("listening on http://"):
            self.kill()
            raise AssertionError(self.log.read_text())
        self.address = self.line.removeprefix("listening on ").strip()
        self.port = int(self.address.rpartition(":")[2])
        made = folder / "admin.key"
        self.key = made.read_text().strip() if made.is_file() else ""

    def client(self, key: str | None = None, **options: Any) -> httpx.Client:
        """A caller with this key, by default the admin's; without any for an empty text."""
        used = self.key if key is None else key
        headers = {"Authorization": f"Bearer {used}"} if used else {}
        return httpx.Client(base_url=self.address, headers=headers, timeout=PATIENCE, **options)

    def new_key(self, *scopes: str, namespace: str = "default", policies: list[str] | None = None) -> str:
        """A key with these scopes, which reaches these policies; by default all."""
        name = f"key{next(_numbers)}"
        body = {"name": name, "scopes": list(scopes), "namespace": namespace, "policies": policies}
        with self.client() as admin:
            return str(admin.post("/v1/keys", json=body).json()["key"])

    def policy(self, **arguments: Any) -> str:
        """The path of a new policy."""
        path = f"/v1/policies/policy{next(_numbers)}"
        with self.client() as admin:
            answer = admin.put(path, json=STREAM | arguments)
        assert answer.status_code == 201, answer.text
        return path

    def raw(self, data: bytes, *, pieces: int = 1, end: bool = False) -> bytes:
        """All that is answered to these bytes on a connection of their own."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
            size = -(-len(data) // pieces)
            for start in range(0, len(data), size or 1):
                connection.sendall(data[start : start + size])
            if end:
                connection.shutdown(socket.SHUT_WR)
            found = b""
            while piece := _received(connection):
                found += piece
            return found

    def __enter__(self) -> Running:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End it in any case; a test that has not failed also wants a good end."""
        if error is None:
            assert self.stop() == 0
        else:
            self.kill()

    def stop(self) -> int:
        """End it as an operator does; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End it as a power loss does."""
        self.process.kill()
        self.wait()

    def wait(self) -> int:
        """The exit code."""
        code = self.process.wait(END)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except ConnectionResetError:
        return b""


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem document of an answer, which must be this one."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["type"] == f"urn:tacit:problem:{code}"
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    return document
