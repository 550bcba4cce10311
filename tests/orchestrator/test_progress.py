"""Progress: plain lines without a terminal."""

import io
import re

from orchestrator.running.progress import Progress


def test_plain_lines_without_a_terminal() -> None:
    stream = io.StringIO()
    with Progress(stream) as progress:
        progress.run("main seed 1 (1/1)")
        progress.phase("main", "load and nemesis (random)")
        progress.fault("kill n2: confirmed")
        progress.counts({"ok": 1234, "fail": 0, "info": 5})
    lines = [re.sub(r"^\[ *\d+\.\d s\] ", "", line) for line in stream.getvalue().splitlines()]
    assert lines == ["main: load and nemesis (random)", "kill n2: confirmed"]


def test_quiet_is_quiet() -> None:
    stream = io.StringIO()
    with Progress(stream, quiet=True) as progress:
        progress.phase("main")
        progress.say("something")
    assert stream.getvalue() == ""
