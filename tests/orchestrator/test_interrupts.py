"""Ctrl-C: at once, but never in the middle of cleaning up."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from nemeses.scheduling import REAL_TIME
from orchestrator.errors import EXIT_INTERRUPTED, Interrupted
from orchestrator.running.interrupts import Interrupts

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def quiet() -> Interrupts:
    return Interrupts(on_first=lambda: None, on_second=lambda: None)


def calls_of_main_thread() -> set[str]:
    """The functions that it is in."""
    frame, names = sys._current_frames().get(threading.main_thread().ident or 0), set[str]()
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return names


def test_the_first_interrupt_is_raised_where_the_run_is() -> None:
    interrupts = quiet()
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted), interrupts.installed():
        interrupt()
    assert interrupts.requested
    assert signal.getsignal(signal.SIGINT) is before


def test_a_shielded_part_is_finished_first() -> None:
    interrupts, done = quiet(), []

    def clean_up() -> None:
        with interrupts.shielded():
            interrupt()
            with interrupts.shielded():
                done.append("inner")
            done.append("outer")

    with pytest.raises(Interrupted), interrupts.installed():
        clean_up()
    assert done == ["inner", "outer"]


def test_cleaning_up_after_an_interrupt_raises_no_second_one() -> None:
    interrupts, done = quiet(), []

    def run() -> None:
        try:
            interrupt()
        finally:
            with interrupts.shielded():
                done.append("cleaned up")

    with pytest.raises(Interrupted), interrupts.installed():
        run()
    assert done == ["cleaned up"]


def test_an_interrupt_waits_for_parallel_actions() -> None:
    """Cleanup would run before the end of such an action."""
    left, left_before = threading.Event(), list[bool]()

    def action(_: str) -> None:
        while "start" in calls_of_main_thread():  # until it waits for the results
            time.sleep(0.001)
        interrupt()
        left_before.append(left.wait(0.5))

    def begin() -> None:
        try:
            REAL_TIME.for_each(["n1"], action)
        finally:
            left.set()

    with pytest.raises(Interrupted), quiet().installed():
        begin()
    assert left_before == [False]


def test_the_second_interrupt_ends_the_process_at_once() -> None:
    program = (
        "import os, signal\n"
        "from orchestrator.running.interrupts import Interrupts\n"
        "i = Interrupts(on_first=lambda: print('first', flush=True), on_second=lambda: print('second', flush=True))\n"
        "with i.installed(), i.shielded():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('went on')\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stdout) == (EXIT_INTERRUPTED, "first\nsecond\n")


def test_two_signals_of_one_request_are_one_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1.0
    monkeypatch.setattr("orchestrator.running.interrupts.time.monotonic", lambda: now)
    said = list[str]()

    def ended(_: int) -> None:
        raise SystemExit

    monkeypatch.setattr("orchestrator.running.interrupts.os._exit", ended)
    interrupts = Interrupts(on_first=lambda: said.append("first"), on_second=lambda: said.append("second"))

    def ask() -> None:
        nonlocal now
        interrupt()
        os.kill(os.getpid(), signal.SIGTERM)
        assert said == ["first"]
        now += 1.0
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit), interrupts.installed(), interrupts.shielded():
        ask()
    assert said == ["first", "second"]


def test_a_closed_terminal_is_one_interrupt_unless_ignored() -> None:
    program = (
        "import os, signal, sys\n"
        "from orchestrator.running.interrupts import Interrupts\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[1] == 'nohup' else signal.SIG_DFL)\n"
        "i = Interrupts(on_first=lambda: print('first'), on_second=lambda: print('second', flush=True))\n"
        "with i.installed(), i.shielded():\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    print('went on', flush=True)\n"
        "    os._exit(0)\n"
    )
    for how, said in (("terminal", "first\nwent on\n"), ("nohup", "went on\n")):
        result = subprocess.run(
            [sys.executable, "-c", program, how], capture_output=True, text=True, timeout=120, check=False
        )
        assert (result.returncode, result.stdout) == (0, said)


class _InterruptedDescriptor(io.RawIOBase):
    """A signal arrives during the first write to it."""

    writes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        self.writes += 1
        if self.writes == 1:
            interrupt()
        return memoryview(data).nbytes


def test_a_signal_during_a_write_to_the_stream_of_the_notice_stops_the_run() -> None:
    stream = io.TextIOWrapper(io.BufferedWriter(_InterruptedDescriptor()), line_buffering=True)
    interrupts = Interrupts(lambda: print("stopping", file=stream), lambda: None)
    with pytest.raises(Interrupted), interrupts.installed():
        print("a line", file=stream)


def test_another_error_of_the_notice_is_not_hidden() -> None:
    def notice() -> None:
        raise RuntimeError("another one")

    with pytest.raises(RuntimeError, match="another one"), Interrupts(notice, lambda: None).installed():
        interrupt()


def test_an_interrupt_ends_the_wait_for_a_call_that_blocks_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemeses.scheduling._LAST_WAIT_S", 0.05)
    never, done = threading.Event(), list[str]()

    def act(name: str) -> None:
        if name == "blocks":
            interrupt()
            never.wait()
        done.append(name)

    try:
        with pytest.raises(Interrupted), quiet().installed():
            REAL_TIME.for_each(["ends", "blocks"], act)
        assert done == ["ends"]
    finally:
        never.set()


def test_an_interrupt_during_the_imports_ends_without_a_traceback() -> None:
    program = (
        "import os, runpy, signal, sys\n"
        "class Interrupting:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path, target=None):\n"
        "        if name == 'orchestrator.command.line':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting)\n"
        "runpy.run_module('orchestrator', run_name='__main__')\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (-signal.SIGINT, "", "")
