"""The HTTP server of a store's pages: its index, its reports, and the page of the invocation that is under way.

Theory of operation. The server changes nothing. Its root is the store's index, made for each request; other paths are
files below the store, whose resolved path must stay there. Every response carries a policy that forbids the
page to load anything from elsewhere. On another address than loopback each request needs the token: once in the address
as `?token=`, which sets a cookie and redirects to the address without it, so that the token stays out of the browser's
history and of links. Requests are not logged, and neither is the address of one that fails.

Files that nodes wrote are evidence, and one of them may be a page with a script. A script of this origin could read the
whole store, so only reports run scripts; every other file is shown in a sandbox.

The state of the invocations that are under way, read from the files that their runs write.

Theory of operation. A run appends to its journal and to its clients' streams as things happen, and holds a lock while
its process lives. A second process can therefore show the run without talking to it, and a run never waits for a
viewer. A look reads what the clients recorded since the last one, and keeps counts by second; the journal, which does
not grow with operations, is read whole. `Live` waits `PAUSE_FACTOR` times the processor time of the last look before
the next, so that viewing costs a run at most that share of one processor. On a busy machine a look takes longer, but
costs the same: the pause must not grow with it, or a viewer would miss short faults.
"""

import asyncio
import hmac
import ipaddress
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import tornado.httpserver
import tornado.netutil
import tornado.web
from msgspec.structs import replace
from tornado.log import app_log

from analysis.report import TEMPLATES
from analysis.run_row import RunRow, unknown_row
from history.journal.reader import read_journal
from history.journal.timeline import HEALED, RunClock, fault_spans, phases_of
from history.journal.writer import FILE_NAME
from history.record.growing_operations import GrowingOperations
from history.regular_files import open_regular
from installation.sanitize import visible_line
from orchestrator.store.directories import LATEST, RunDirectory
from orchestrator.store.index import UNDECIDED, read_index, stored_row
from orchestrator.store.index_page import PAGE, index_of
from orchestrator.store.plans import PlanError, StoredRun, read_plan, stamps

PAUSE_FACTOR: Final = 20
MOST_SECONDS: Final = 900
"""Older seconds of a run are not shown."""
_MOST_LINES: Final = 12
_TAIL_BYTES: Final = 8 << 10
_LOGS: Final = ("service.log", "events.jsonl")
RUNNING, PLANNED = "running", "planned"
_OF_MATRIX: Final = ("run", "cell", "seed", "verdict", "met")


@dataclass(frozen=True)
class ShownFault:
    """A fault; times in seconds since the run's start, `until` None while it is in force."""

    kind: str
    targets: tuple[str, ...]
    since: float
    until: float | None
    status: str


@dataclass(frozen=True)
class LiveRun:
    """A run that is under way. By second since its start: `acknowledged` and `failed` operations, and `latency_ms`, the
    99th percentile, within 2.3 % (None without an acknowledgement). `lines`: the newest lines of nodes' logs, as (node,
    line)."""

    run: str
    seconds: int
    phase: str
    total: int
    acknowledged: tuple[int, ...]
    failed: tuple[int, ...]
    latency_ms: tuple[float | None, ...]
    faults: tuple[ShownFault, ...]
    lines: tuple[tuple[str, str], ...]
    first_second: int = 0


@dataclass(frozen=True)
class LiveInvocation:
    """The newest invocation of a campaign: the rows of its plan, and the run that is under way, if any. In place of a
    verdict that is not there a row has `RUNNING`, `PLANNED` or `UNDECIDED`."""

    campaign: str
    stamp: str
    matrix: tuple[RunRow, ...]
    running: LiveRun | None

    def to_json(self) -> dict[str, Any]:
        matrix = [{name: getattr(row, name) for name in _OF_MATRIX} for row in self.matrix]
        running = None if self.running is None else asdict(self.running)
        return {"campaign": self.campaign, "stamp": self.stamp, "matrix": matrix, "running": running}


class Live:
    """Reads the newest invocations of a store's campaigns. `look` is for one thread."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._seen: list[LiveInvocation] = []
        self._runs: dict[Path, RunLook] = {}
        self._next_s = 0.0

    def look(self) -> list[LiveInvocation]:
        """The newest invocations, those under way first; at most `PAUSE_FACTOR` times its own processor time old."""
        if time.monotonic() >= self._next_s:
            before_s = time.process_time()
            before, self._runs = self._runs, {}
            stored = invocations(self._store, lambda path: self._look_at(path, before.get(path)))
            newest_first = sorted(stored, key=lambda invocation: invocation.stamp, reverse=True)
            self._seen = sorted(newest_first, key=lambda invocation: invocation.running is None)
            cost_s = time.process_time() - before_s
            self._next_s = time.monotonic() + min(30.0, max(0.5, PAUSE_FACTOR * cost_s))
        return self._seen

    def _look_at(self, path: Path, look: "RunLook | None") -> LiveRun:
        self._runs[path] = RunLook(path) if look is None else look
        return self._runs[path].look()


def invocations(store: Path, look: Callable[[Path], LiveRun]) -> Iterator[LiveInvocation]:
    """The newest invocation of each campaign that has a readable plan. `look`: at a run that is under way."""
    try:
        directories = sorted(path for path in store.iterdir() if path.is_dir() and path.name != LATEST)
    except OSError:
        return
    for directory in directories:
        plan_stamps = () if directory.name.startswith(".") else stamps(directory)
        if not plan_stamps:
            continue
        try:
            plan = read_plan(directory, plan_stamps[-1])
        except PlanError:
            continue
        matrix = tuple(_row(directory, run) for run in plan.runs)
        under_way = next((row.run for row in matrix if row.verdict == RUNNING), None)
        running = None if under_way is None else look(directory / under_way)
        yield LiveInvocation(directory.name, plan.stamp, matrix, running)


def _row(campaign_dir: Path, run: StoredRun) -> RunRow:
    path, planned = campaign_dir / run.id, unknown_row(run.id, run.cell.name, run.seed)
    try:
        stored = stored_row(path)
        if stored.verdict != UNDECIDED:
            return replace(planned, verdict=stored.verdict, met=stored.met)
    except FileNotFoundError:
        pass
    except (OSError, ValueError):
        return planned
    if not path.is_dir():
        return replace(planned, verdict=PLANNED)
    return replace(planned, verdict=RUNNING if RunDirectory(path).is_held() else UNDECIDED)


class RunLook:
    """Looks at a run that is under way, again and again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._origin = 0
        self._operations = GrowingOperations(self._directory, 0, MOST_SECONDS)

    @property
    def _directory(self) -> Path:
        return self._path / "history" / "operations"

    def look(self) -> LiveRun:
        """What the run has recorded so far. A record that cannot be read yet is empty."""
        try:
            journal = read_journal(self._path / "history" / FILE_NAME).lines
            origin = journal[0]["t"] if journal else 0
            if origin != self._origin or not self._operations.look(journal):
                self._origin = origin
                self._operations = GrowingOperations(self._directory, origin, MOST_SECONDS)
                self._operations.look(journal)
        except OSError:
            return LiveRun(self._path.name, 0, "starting", 0, (), (), (), (), _lines(self._path))
        return self._live(journal)

    def _live(self, journal: Sequence[dict[str, Any]]) -> LiveRun:
        counts = self._operations.counts
        newest = max([self._origin, counts.newest, *(line["t"] for line in journal)])
        seconds = max(1, int((newest - self._origin) / 1e9) + 1)
        shown = range(max(0, seconds - MOST_SECONDS), seconds)
        phases = phases_of(journal)
        return LiveRun(
            run=self._path.name,
            seconds=seconds,
            phase=phases[-1].name if phases else "starting",
            total=counts.total,
            acknowledged=tuple(map(counts.acknowledged, shown)),
            failed=tuple(map(counts.failed, shown)),
            latency_ms=tuple(_rounded(counts.latency_ms(second, 0.99)) for second in shown),
            faults=tuple(_faults(journal, self._origin)),
            lines=_lines(self._path),
            first_second=shown.start,
        )


def _rounded(latency_ms: float | None) -> float | None:
    return None if latency_ms is None else round(latency_ms, 3)


def _faults(journal: Sequence[dict[str, Any]], origin: int) -> Iterator[ShownFault]:
    for fault in fault_spans(journal, RunClock(origin)):
        until = fault.end_s if HEALED in fault.lines else None
        yield ShownFault(fault.kind, fault.targets, fault.start_s, until, fault.status)


def _lines(path: Path) -> tuple[tuple[str, str], ...]:
    """The last lines of each node's log, control characters made visible."""
    rows = list[tuple[str, str]]()
    for node in sorted((path / "nodes").glob("*")):
        for name in _LOGS:
            if lines := _tail(node / name):
                rows += [(node.name, visible_line(line)) for line in lines]
                break
    return tuple(rows)


def _tail(path: Path) -> Sequence[str]:
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ()
    return text.splitlines()[-_MOST_LINES:]


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
        offered = self.get_query_argument("token", "")
        if _is_equal(offered, self._token):
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


def _is_equal(offered: str, token: str) -> bool:
    return hmac.compare_digest(offered.encode(), token.encode())


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
            changes = await asyncio.get_running_loop().run_in_executor(None, self._live.look)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps([run.to_json() for run in changes]))


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
