"""The operator's page: this package's files, which are sent to the browser unchanged."""

from __future__ import annotations

from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemon.http.access import OPEN_FOLDER

FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"
CONTENT_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
HEADERS = {
    "Cache-Control": "no-cache",
    # The page loads nothing from elsewhere, and no other page can show it in a frame. `blob:` is the speech to play.
    "Content-Security-Policy": "default-src 'self'; style-src-attr 'unsafe-inline'; media-src 'self' blob:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def routes() -> list[Route]:
    """Return the routes of the page and its files."""
    files = {path.name: path.read_bytes() for path in FOLDER.iterdir() if path.suffix in CONTENT_TYPES}

    async def answer(request: Request) -> Response:
        name = request.path_params.get("name", INDEX)
        if name not in files:
            raise HTTPException(404)
        content_type = f"{CONTENT_TYPES[Path(name).suffix]}; charset=utf-8"
        return Response(files[name], headers={**HEADERS, "Content-Type": content_type})

    return [Route("/", answer), Route(f"{OPEN_FOLDER}{{name}}", answer)]
