"""The least that a server can do: read a body, answer a few bytes.  `python workloads/load/echo.py FOLDER`.

Its server, protocol and settings are those of decisions; what a decision costs beyond it is ours.
"""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from tacit.service.http.logs import JsonLog
from tacit.service.http.options import Options
from tacit.service.http.server import Server, address_of, listen

if TYPE_CHECKING:  # another tree, whose names differ, may be measured beside it
    from tacit.service.http.connections import ASGIScope, Receive, Send

_BODY: Final = b'{"event_id":"abcd","arm":0}'
_HEADERS: Final = [(b"content-type", b"application/json"), (b"content-length", str(len(_BODY)).encode())]


async def echo(scope: ASGIScope, receive: Receive, send: Send) -> None:
    """Answer any request."""
    await receive()
    await send({"type": "http.response.start", "status": 201, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _BODY})


def main(folder: str) -> None:
    """Serve until SIGTERM; says where it listens, and writes it into the folder."""
    options = Options(data=folder, port=0, log_requests=False)
    deployment = SimpleNamespace(clock=SimpleNamespace(stop=lambda: None))
    log, stopping = JsonLog(requests=False), asyncio.Event()
    served: Any = SimpleNamespace(options=options, log=log, stopping=stopping, deployment=deployment)
    listener = listen(options)
    try:
        Server(echo, served, address_of(listener, options)).run([listener])
    finally:
        listener.close()


if __name__ == "__main__":
    main(sys.argv[1])
