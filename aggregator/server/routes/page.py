"""The web page at `/`, and the files that it consists of. It uses the other routes like any program.

Elasticsearch's clients also request `/` and expect facts about the server: only clients that prefer HTML get the page.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator.server.bodies.shared.media import JSON, choose, listed
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.bodies.shared.schemas import json_response
from aggregator.server.context import Context
from aggregator.server.control.operation import bound, operation, parameter
from aggregator.server.routes.bulk import about

HTML = "text/html"
_MEDIA = {".html": HTML, ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Only scripts, styles and requests of this server, and text can never become markup."""
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_FACTS = {"type": "object"}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media: str
    tag: str


def routes(context: Context) -> list[Route]:
    """Return the routes `/` and `/page/{file}`."""
    found = _files()
    return [
        Route("/", bound(page, found["index.html"]), methods=["GET", "HEAD"]),
        Route("/page/{file}", bound(page_file, found), methods=["GET"]),
    ]


def _files() -> dict[str, _File]:
    """Return the files of the page, by name."""
    found = {}
    for each in files("aggregator.server").joinpath("page").iterdir():
        media = _MEDIA.get("." + each.name.rpartition(".")[2])
        if media is not None:
            content = each.read_bytes()
            found[each.name] = _File(content, media, f'"{hashlib.sha256(content).hexdigest()[:16]}"')
    return found


@operation(
    "open",
    "The web page; facts about the server for clients that do not accept HTML",
    tag="documentation",
    responses={
        "200": {
            "description": "the page, or the facts that Elasticsearch's clients read",
            "content": {HTML: {}, **json_response("", _FACTS)["content"]},
        }
    },
)
async def page(index: _File, request: Request) -> Response:
    if choose(listed(request.headers, "accept"), (JSON, HTML)) == HTML:
        return _answer(index, request)
    return await about(request)


@operation(
    "open", "A file of the page", tag="documentation",
    parameters=(parameter("file", "Its name", where="path", example="app.js", format="page-file"),),
    responses={"200": {"description": "a script, style sheet or image", "content": {media: {} for media in
             ("text/javascript", "text/css", "image/svg+xml", HTML)}},
               "304": {"description": "the caller has the current version"}, "404": {"description": "no such file"}},
)  # fmt: skip
async def page_file(found: Mapping[str, _File], request: Request) -> Response:
    file = found.get(request.path_params["file"])
    if file is None:
        raise ProblemError(404, "no-such-file", "the page has no such file")
    return _answer(file, request)


def _answer(file: _File, request: Request) -> Response:
    headers = _HEADERS | {"ETag": file.tag, "Vary": "Accept"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(None, 304, headers)
    return Response(file.content, 200, headers, file.media)
