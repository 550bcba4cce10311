"""Opens pages in one headless Chromium and measures the visible result: errors, requests, widths, contrast, overlaps.

The test controls the browser over two pipes with the DevTools protocol: JSON objects, each ended by a zero byte. No
host name but `REBOUND` resolves in the browser, and every request of a page is recorded. `canvas_probe.js` runs before
the page's scripts and records each text on a canvas with the pixels behind it, so that these texts are measured, too.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

NAMES: Final = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
ANSWER_S: Final = 60.0
REBOUND: Final = "rebound.example"
"""A name of another site, whose owner has let it resolve to this machine."""
_OPTIONS: Final = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                   "--remote-debugging-pipe",
                   f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")  # fmt: skip


@dataclass(frozen=True)
class PageMeasurements:
    """What `page_probe.js` measured. `contrast`: texts below 4.5 to 1. `overlaps`: pairs of texts. `texts`, `drawn`:
    number of text boxes of the document and on canvases. `narrowest_proof`: width of the narrowest cell with a fault's
    proof; `rightmost_link`: right edge, px."""

    errors: list[str]
    requests: list[str]
    width: int
    window: int
    contrast: list[list[Any]]
    overlaps: list[list[str]]
    font: str
    timeline: str
    texts: int
    drawn: int
    dark: bool
    narrowest_proof: float
    rightmost_link: float


@dataclass
class BrowserPage:
    """A tab. `errors`: exceptions, console errors and warnings, and failed loads; `requests`: addresses other than the
    page's own and `data:`."""

    browser: "Browser"
    session: str
    address: str = ""
    loaded: bool = False
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def go(self, address: str, *, width: int, dark: bool = False) -> None:
        """Open a page in a window of this width; returns when it has loaded."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)
        self.address, self.loaded = address, False
        self.errors.clear()
        self.requests.clear()
        answer = self.call("Page.navigate", url=address)
        assert "errorText" not in answer, answer
        self.browser.read_until(lambda: self.loaded)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def probe(self, name: str) -> Any:
        """The result of the JavaScript function in a file here."""
        return self.evaluate(f"({Path(__file__).with_name(name).read_text().rstrip().rstrip(';')})()")

    def measure(self) -> PageMeasurements:
        """Measure the page as it is."""
        found = self.probe("page_probe.js")
        return PageMeasurements(errors=list(self.errors), requests=list(self.requests), **found)

    def screenshot(self, target: Path) -> bytes:
        """A PNG of the whole page."""
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        target.write_bytes(base64.b64decode(taken["data"]))
        return target.read_bytes()

    def until(self, expression: str, within_s: float = ANSWER_S) -> Any:
        """The first value of the expression that is true. Raises `AssertionError` after `within_s`."""
        give_up = time.monotonic() + within_s
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < give_up, f"not within {within_s} s: {expression}"
            self.evaluate("new Promise(done => setTimeout(done, 50))")
        return value

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, parameters, self.session)

    def happened(self, method: str, event: dict[str, Any]) -> None:
        """Keep what an event of this tab says."""
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Network.requestWillBeSent":
            asked = str(event["request"]["url"])
            if not asked.startswith("data:") and asked != self.address:
                self.requests.append(asked)
        elif method == "Runtime.exceptionThrown":
            self.errors.append(str(event["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            self.errors.append(str(event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] == "error":
            self.errors.append(str(event["entry"]["text"]))


class Browser:
    """A running browser; see `browser`."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._out, self._in = to_browser, from_browser
        self._buffer = b""
        self._last = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._pages: dict[str, BrowserPage] = {}

    def page(self) -> BrowserPage:
        """A new tab."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        made = self._pages[session] = BrowserPage(self, session)
        for domain in ("Page", "Network", "Runtime", "Log"):
            made.call(f"{domain}.enable")
        recorder = Path(__file__).with_name("canvas_probe.js").read_text()
        made.call("Page.addScriptToEvaluateOnNewDocument", source=recorder)
        return made

    def call(self, method: str, parameters: dict[str, Any], session: str = "") -> dict[str, Any]:
        """The result of a command. Raises `AssertionError` if the browser refuses it."""
        self._last += 1
        number = self._last
        command = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        data = json.dumps(command).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        self.read_until(lambda: number in self._answers)
        answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def read_until(self, done: Callable[[], bool]) -> None:
        """Handle messages until `done`."""
        give_up = time.monotonic() + ANSWER_S
        while not done():
            readable, _, _ = select.select([self._in], [], [], max(0.0, give_up - time.monotonic()))
            assert readable, f"no answer of the browser within {ANSWER_S} s"
            read = os.read(self._in, 1 << 20)
            assert read, "the browser ended"
            *messages, self._buffer = (self._buffer + read).split(b"\0")
            for message in messages:
                self._handle(json.loads(message))

    def _handle(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers[message["id"]] = message
        elif page := self._pages.get(message.get("sessionId", "")):
            page.happened(message["method"], message["params"])


def program() -> str | None:
    """The path of Chromium; None where it is not installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with its profile in this directory; it ends with the context."""
    path = program()
    assert path is not None
    commands, answers = os.pipe(), os.pipe()
    theirs = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (commands[0], answers[1])]
    for end in (commands[0], answers[1]):
        os.close(end)
    quiet = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, theirs[0], 3), (os.POSIX_SPAWN_DUP2, theirs[1], 4),
               (os.POSIX_SPAWN_DUP2, quiet, 1), (os.POSIX_SPAWN_DUP2, quiet, 2)]  # fmt: skip
    words = [path, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"]
    pid = os.posix_spawn(path, words, dict(os.environ), file_actions=actions, setpgroup=0)
    for end in (*theirs, quiet):
        os.close(end)
    try:
        yield Browser(commands[1], answers[0])
    finally:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(commands[1])
        os.close(answers[0])
