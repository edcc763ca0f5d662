"""The page and its files, which need no key: they hold no data."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from tacit.service.http.problems import not_found
from tacit.service.http.state import Service

FOLDER: Final = Path(__file__).parents[1] / "page"
STATIC: Final = "/static/"
"""Where the files of the page are served."""
_TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # kept, and asked for anew each time: a new version shows at once
}
_FILES: Final = {path.relative_to(FOLDER).as_posix(): path for path in FOLDER.rglob("*") if path.suffix in _TYPES}
"""Every file of the page by its path: no other file is served."""


async def file(service: Service, request: Request) -> Response:
    """Return the page, or one of its files."""
    path = _FILES.get(request.path_params.get("path", "index.html"))
    if path is None:
        raise not_found()
    stamp = path.stat()
    tag = f'"{stamp.st_mtime_ns:x}-{stamp.st_size:x}"'
    headers = _HEADERS | {"ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(path.read_bytes(), headers=headers, media_type=_TYPES[path.suffix])
