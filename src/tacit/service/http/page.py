"""The page and its files, which need no key: they hold no data."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from tacit.service.http.problems import not_found
from tacit.service.http.state import Service

FOLDER: Final = Path(__file__).parents[1] / "page"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # kept, and asked for anew each time: a new version shows at once
}


def _files() -> dict[str, Path]:
    """Every file of the page by its path: what is not listed here is not served."""
    found = (path for path in FOLDER.rglob("*") if path.suffix in _TYPES and path.is_file())
    return {path.relative_to(FOLDER).as_posix(): path for path in found}


_FILES: Final = _files()


async def index(service: Service, request: Request) -> Response:
    """The page itself."""
    return _file("index.html", request)


async def static(service: Service, request: Request) -> Response:
    """A file of the page."""
    return _file(request.path_params["path"], request)


def _file(name: str, request: Request) -> Response:
    path = _FILES.get(name)
    if path is None:
        raise not_found()
    data = path.read_bytes()
    stamp = path.stat()
    tag = f'"{stamp.st_mtime_ns:x}-{stamp.st_size:x}"'
    headers = _HEADERS | {"ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type=_TYPES[path.suffix])
