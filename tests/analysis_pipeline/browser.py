"""Opens a page in headless Chromium and measures what a user would see: errors, requests, widths, contrast, overlaps.

A copy of the page contains the script `page_probe.js`, which replaces the document by the measurements; `--dump-dom`
prints them. No host name resolves in the browser. Requests other than `data:` are listed.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

NAMES: Final = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
PROBE: Final = Path(__file__).with_name("page_probe.js")

# The first script of the page: it records every error from then on.
_RECORDER: Final = """<script>window.pageErrors = [];
addEventListener('error', function (e) { pageErrors.push(e.message || 'a resource could not be loaded'); }, true);
addEventListener('unhandledrejection', function (e) { pageErrors.push(String(e.reason)); });
['error', 'warn'].forEach(function (kind) {
  console[kind] = function () { pageErrors.push([].join.call(arguments)); };
});
</script>"""


@dataclass(frozen=True)
class PageMeasurements:
    """What `page_probe.js` measured. `contrast`: texts below 4.5 to 1. `overlaps`: pairs of texts. `narrowest_proof`:
    width of the narrowest cell with a fault's proof; `rightmost_link`: right edge, px. `extra`: the result of a probe
    of the test."""

    errors: list[str]
    width: int
    window: int
    contrast: list[list[Any]]
    overlaps: list[list[str]]
    requests: list[str]
    font: str
    timeline: str
    texts: int
    dark: bool
    narrowest_proof: float
    rightmost_link: float
    extra: Any


def browser() -> str | None:
    """The path of Chromium; None where it is not installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def measure(page: Path, *, width: int, dark: bool = False, probe: str = "") -> PageMeasurements:
    """Measure a page in a window of this width. `probe`: a file here with a JavaScript function whose
    result is `extra`."""
    own = f"<script>window.pageProbe={PROBE.with_name(probe).read_text()}</script>" if probe else ""
    scripts = f"{own}<script>{PROBE.read_text()}</script></body>"
    copy = page.with_name(f".{page.stem}-{width}-{dark}.html")
    text = page.read_text(encoding="utf-8").replace("<head>", f"<head>{_RECORDER}", 1).replace("</body>", scripts)
    copy.write_text(text, encoding="utf-8")
    dumped = _run(copy, width, dark, "--dump-dom")
    copy.unlink()
    found = re.search(r'<pre id="found">(.*?)</pre>', dumped, re.DOTALL)
    assert found, f"the page's script did not end: {dumped[:500]}"
    return PageMeasurements(**json.loads(html.unescape(found[1])))


def screenshot(page: Path, target: Path, *, width: int, dark: bool) -> bytes:
    """A PNG of a page."""
    _run(page, width, dark, f"--screenshot={target}")
    return target.read_bytes()


def _run(page: Path, width: int, dark: bool, action: str) -> str:
    program = browser()
    assert program is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    options += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--window-size={width},3000", "--virtual-time-budget=5000"]
    options += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    command = [program, *options, action, page.resolve().as_uri()]
    return subprocess.run(command, capture_output=True, check=True, timeout=120, encoding="utf-8").stdout
