"""The page itself: a few files of this package, given to whoever asks, before any key is asked for.

They hold nothing but code that is public. Whatever the page then asks goes through the guard with a key.
The policy sent along forbids the browser every foreign source, every script and style inside the page, and to
make HTML of a string: what a model says can only ever be text.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from unspool.serve.guard import App, Receive, Send

FOLDER = Path(__file__).parent / "page"
KINDS = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
]


class StaticFiles:
    """An ASGI application that gives the page's files, and leaves everything else to another."""

    def __init__(self, app: App) -> None:
        self._app = app
        # All there is, read once: a path that a client makes up is never looked for on disk.
        files = {f"/playground/{path.name}": path for path in FOLDER.iterdir() if path.suffix in KINDS}
        files["/"] = files.pop("/playground/index.html")
        self.files = {name: (KINDS[path.suffix], path.read_bytes()) for name, path in files.items()}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """A file of the page, or what the application behind it says."""
        known = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        found = self.files.get(scope["path"]) if known else None
        if found is None:
            await self._app(scope, receive, send)
            return
        kind, body = found
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *HEADERS]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
