"""The HTTP server of a store's pages: its index, its reports, and the page of the invocation that is under way.

Theory of operation. The server changes nothing. Its root is the store's index, made for each request; other paths are
files below the store, whose resolved path must stay there. Every response carries a policy that forbids the
page to load anything from elsewhere. On another address than loopback each request needs the token: once in the address
as `?token=`, which sets a cookie and redirects to the address without it, so that the token stays out of the browser's
history and of links. Requests are not logged, and neither is the address of one that fails.

Files that nodes wrote are evidence, and one of them may be a page with a script. A script of this origin could read the
whole store, so only reports run scripts; every other file is shown in a sandbox.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import tornado.httpserver
import tornado.netutil
import tornado.web
from tornado.log import app_log

from analysis.report import TEMPLATES
from orchestrator.campaign.index_page import PAGE, index_of
from orchestrator.campaign.store_index import read_index
from orchestrator.serving.live import Live

COOKIE: Final = "brownout_token"
_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: 'self'; "
    "connect-src 'self'"
)
_SANDBOX: Final = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data: 'self'"
_NAMES: Final = frozenset({"localhost"})
_REPORT: Final = "report.html"
_REPORT_DEPTHS: Final = (2, 3)
"""Parts of the paths `CAMPAIGN/report.html` and `CAMPAIGN/RUN/report.html`."""


def is_loopback(address: str) -> bool:
    """Whether this address, or host of a request, is reached from this machine only. IPv6 may have its brackets."""
    if address in _NAMES:
        return True
    try:
        return ipaddress.ip_address(address.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


class _Guarded(tornado.web.RequestHandler):
    """Requires the token, if there is one, and a host name that a browser on this machine would use."""

    def initialize(self, token: str, **_: Any) -> None:
        self._token = token

    def prepare(self) -> None:
        self.set_header("Content-Security-Policy", _POLICY)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cache-Control", "no-store")
        if not self._token:
            # Another site's page could otherwise reach this server under a name that resolves to loopback.
            if not is_loopback(self.request.host_name):
                raise tornado.web.HTTPError(403, reason="This server answers to localhost only")
            return
        given = self.get_query_argument("token", "")
        if _is_equal(given, self._token):
            self.set_cookie(COOKIE, self._token, httponly=True, samesite="Strict")
            # "//host" would be an address on another host.
            self.redirect("/" + self.request.path.lstrip("/\\"))
        elif not _is_equal(self.get_cookie(COOKIE, "") or "", self._token):
            raise tornado.web.HTTPError(403, reason="The token is missing or wrong: open the address that was printed")

    def head(self, *path: str) -> Any:
        """The headers of `get`; the server omits the content."""
        return self.get(*path)

    def log_exception(self, typ: Any, value: BaseException | None, tb: Any) -> None:
        """A refused request is not logged. An internal error is, without the address, which may contain the token."""
        if not isinstance(value, tornado.web.HTTPError):
            app_log.error("internal error", exc_info=(typ, value, tb) if typ and value else None)


def _is_equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


class _Index(_Guarded):
    def initialize(self, token: str, store: Path) -> None:  # type: ignore[override]
        super().initialize(token)
        self._store = store

    async def get(self) -> None:
        page = await asyncio.get_running_loop().run_in_executor(None, _index_of, self._store)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(page)


def _index_of(store: Path) -> str:
    try:
        return index_of(store, read_index(store))
    except OSError as error:
        raise tornado.web.HTTPError(500, reason=f"The store cannot be read: {error.strerror}") from error


class _LivePage(_Guarded):
    def get(self) -> None:
        css = (TEMPLATES / "style.css").read_text(encoding="utf-8")
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish((TEMPLATES / "live.html").read_text(encoding="utf-8").replace("/*css*/", css, 1))


class _LiveData(_Guarded):
    def initialize(self, token: str, live: Live, turn: asyncio.Lock) -> None:  # type: ignore[override]
        super().initialize(token)
        self._live, self._turn = live, turn

    async def get(self) -> None:
        async with self._turn:
            seen = await asyncio.get_running_loop().run_in_executor(None, self._live.look)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps([each.to_json() for each in seen]))


class _File(_Guarded, tornado.web.StaticFileHandler):
    """A file below the store; never one that a link leads to elsewhere."""

    def initialize(self, token: str, store: Path) -> None:  # type: ignore[override]
        _Guarded.initialize(self, token)
        tornado.web.StaticFileHandler.initialize(self, str(store))

    def decode_argument(self, value: bytes, name: str | None = None) -> str:
        """A path may have bytes that are not UTF-8, as file names may."""
        return os.fsdecode(value) if name is None else super().decode_argument(value, name)

    def get_cache_time(self, path: str, modified: datetime | None, mime_type: str) -> int:
        del path, modified, mime_type
        return 0

    def validate_absolute_path(self, root: str, absolute_path: str) -> str | None:
        try:
            path = Path(absolute_path).resolve()
            is_served = path.is_relative_to(Path(root).resolve()) and path.is_file()
        except (OSError, ValueError):  # too long, unreadable, or with a NUL
            is_served = False
        if not is_served or not os.access(path, os.R_OK):
            raise tornado.web.HTTPError(404, reason="The store has no such file that can be read")
        return str(path)

    def compute_etag(self) -> str | None:
        """Follows the file's state: the library's tag of a path is that of the first content that was served."""
        state = self._stat()
        return f'"{state.st_ino}-{state.st_size}-{state.st_mtime_ns}"'

    def set_extra_headers(self, path: str) -> None:
        del path
        below = Path(str(self.absolute_path)).relative_to(Path(self.root).resolve()).parts
        if below[-1] != _REPORT or len(below) not in _REPORT_DEPTHS:
            self.set_header("Content-Security-Policy", _SANDBOX)


def application(store: Path, token: str) -> tornado.web.Application:
    """The server's routes over a store's directory. `token`: empty if none is needed."""
    return tornado.web.Application(
        [
            (f"(?:/|/{PAGE})", _Index, {"token": token, "store": store}),
            ("/live", _LivePage, {"token": token}),
            ("/live.json", _LiveData, {"token": token, "live": Live(store), "turn": asyncio.Lock()}),
            ("/(.*)", _File, {"token": token, "store": store}),
        ],
        log_function=lambda _: None,
    )


async def serve(store: Path, address: str, port: int, token: str, ready: Any) -> None:
    """Serve until cancelled. `ready` is called with the port that was bound. Raises `OSError` if it cannot be bound."""
    sockets = tornado.netutil.bind_sockets(port, address)
    server = tornado.httpserver.HTTPServer(application(store, token))
    server.add_sockets(sockets)
    try:
        ready(sockets[0].getsockname()[1])
        await asyncio.Event().wait()
    finally:
        server.stop()
        await server.close_all_connections()
