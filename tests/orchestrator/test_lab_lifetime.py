"""The machines of an invocation: made once, there for every run, gone at the end, whichever end that is."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import Interrupted, RunError, UsageError, WorldError
from orchestrator.nodes.leftovers import remove_labs
from orchestrator.running.engine import Engine
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.running.runner import CampaignInvocation, Runner, RunOptions, plan_invocation, resume_invocation
from orchestrator.store.directories import Store
from orchestrator.worlds.base import Progress as Listener
from orchestrator.worlds.base import World, WorldSpec, no_progress
from orchestrator.worlds.lab import LabSpec
from orchestrator.worlds.process.lab import ProcessLab, ProcessWorld
from orchestrator.worlds.selection import Selection
from tests.orchestrator.campaigns import campaign

pytestmark = pytest.mark.rotating(3, among="lifetime of a lab")

TWO_RUNS = "[seeds]\ncount = 2\n"


def nothing() -> None:
    """No trouble."""


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def fail() -> None:
    raise WorldError("n1: no such machine")


class Trouble:
    """What goes wrong where, and what was done."""

    def __init__(self) -> None:
        self.at_open: Callable[[], None] = nothing
        self.at_up: Callable[[], None] = fail  # runs end before they start: this test does not observe them
        self.at_close: Callable[[], None] = nothing
        self.done: list[str] = []
        self.spec: LabSpec | None = None


@pytest.fixture
def trouble() -> Trouble:
    return Trouble()


def lab_of(trouble: Trouble) -> type[Any]:
    class TroubledWorld(ProcessWorld):
        def up(self, on_progress: Listener = no_progress) -> None:
            trouble.done.append("up")
            super().up(on_progress)
            trouble.at_up()

        def down(self) -> None:
            trouble.done.append("down")
            super().down()

    class TroubledLab(ProcessLab):
        kind = TroubledWorld

        def __init__(self, spec: LabSpec) -> None:
            super().__init__(spec)
            trouble.spec = spec

        def open(self, on_progress: Listener = no_progress) -> None:
            on_progress("making nothing")
            trouble.done.append("open")
            trouble.at_open()

        def world(self, spec: WorldSpec) -> World:
            trouble.done.append("world")
            return super().world(spec)

        def close(self) -> None:
            trouble.done.append("close")
            trouble.at_close()

    return TroubledLab


def make_runs(
    trouble: Trouble, tmp_path: Path, text: str = "", *, keep: bool = False, said: Callable[[str], None] | None = None
) -> None:
    class Ear(Progress):
        def announce(self, text: str) -> None:
            if said is not None:
                said(text)

    store = Store(tmp_path / "store")
    invocation = plan_invocation(store, campaign(text), world="process")
    make(trouble, store, invocation, Ear(quiet=True), keep=keep)


def make(
    trouble: Trouble, store: Store, invocation: CampaignInvocation, progress: Progress, *, keep: bool = False
) -> None:
    options = RunOptions(Selection(lab_of(trouble), "it is troubled"), Engine("in-process"), keep=keep)
    interrupts = Interrupts(on_first=nothing, on_second=nothing)
    with interrupts.installed():
        Runner(store, options, progress, interrupts).make_all(invocation)


def test_one_lab_serves_all_runs_of_an_invocation(trouble: Trouble, tmp_path: Path) -> None:
    make_runs(trouble, tmp_path, TWO_RUNS)
    assert trouble.done == ["open", "world", "up", "down", "world", "up", "down", "close"]
    assert trouble.spec is not None
    assert (trouble.spec.node_count, trouble.spec.filesystem, trouble.spec.keep) == (3, "ext4", False)
    assert trouble.spec.directory.is_relative_to(tmp_path / "store")


def test_a_lab_that_fails_to_open_is_closed_without_a_run(trouble: Trouble, tmp_path: Path) -> None:
    trouble.at_open = fail
    with pytest.raises(RunError, match="no such machine"):
        make_runs(trouble, tmp_path, TWO_RUNS)
    assert trouble.done == ["open", "close"]


def test_an_open_lab_is_not_a_leftover(trouble: Trouble, tmp_path: Path) -> None:
    def clean_up() -> None:
        assert trouble.spec is not None
        os.utime(trouble.spec.directory, (0, 0))
        (killed := trouble.spec.directory.parent / "killed").mkdir()
        os.utime(killed, (0, 0))
        assert remove_labs(tmp_path / "store") == [str(killed)]

    trouble.at_open = clean_up
    make_runs(trouble, tmp_path)
    assert trouble.spec is not None
    assert not trouble.spec.directory.exists()


def test_an_interrupt_while_the_lab_is_made_closes_it(trouble: Trouble, tmp_path: Path) -> None:
    trouble.at_open = interrupt
    with pytest.raises(Interrupted):
        make_runs(trouble, tmp_path)
    assert trouble.done == ["open", "close"]


def test_an_interrupt_in_a_run_ends_it_and_closes_the_lab(trouble: Trouble, tmp_path: Path) -> None:
    trouble.at_up = interrupt
    with pytest.raises(Interrupted):
        make_runs(trouble, tmp_path, TWO_RUNS)
    assert trouble.done == ["open", "world", "up", "down", "close"]


def test_an_interrupt_does_not_stop_the_closing(trouble: Trouble, tmp_path: Path) -> None:
    def interrupt_and_go_on() -> None:
        interrupt()
        trouble.done.append("closed")

    trouble.at_close = interrupt_and_go_on
    with pytest.raises(Interrupted):
        make_runs(trouble, tmp_path)
    assert trouble.done[-2:] == ["close", "closed"]


def test_a_lab_that_does_not_close_does_not_hide_the_result(trouble: Trouble, tmp_path: Path) -> None:
    trouble.at_close = fail
    make_runs(trouble, tmp_path)
    assert trouble.done[-1] == "close"


def test_kept_nodes_stay_until_the_user_interrupts(trouble: Trouble, tmp_path: Path) -> None:
    heard: list[str] = []

    def look(text: str) -> None:
        heard.append(text)
        if "until Ctrl-C" in text:
            trouble.done.append("looked")
            interrupt()

    with pytest.raises(Interrupted):  # for there was a second run to be made
        make_runs(trouble, tmp_path, TWO_RUNS, keep=True, said=look)
    assert trouble.done == ["open", "world", "up", "looked", "down", "close"]
    assert [line.split(" at ")[0] for line in heard[:3]] == ["n1", "n2", "n3"]
    assert "/world/n1" in heard[0], "how to look in is said"


def test_ctrl_c_on_kept_nodes_after_the_last_run_does_not_interrupt(trouble: Trouble, tmp_path: Path) -> None:
    make_runs(trouble, tmp_path, keep=True, said=lambda text: interrupt() if "until Ctrl-C" in text else None)
    assert trouble.done == ["open", "world", "up", "down", "close"]


def test_a_lab_that_failed_to_open_can_be_inspected(trouble: Trouble, tmp_path: Path) -> None:
    trouble.at_open = fail
    heard: list[str] = []

    def look(text: str) -> None:
        heard.append(text)
        if "until Ctrl-C" in text:
            interrupt()

    with pytest.raises(RunError, match="no such machine"):
        make_runs(trouble, tmp_path, keep=True, said=look)
    assert heard[0] == "n1: no such machine"
    assert trouble.spec is not None
    assert trouble.spec.keep
    assert trouble.done == ["open", "close"]


def test_a_script_that_needs_more_than_the_lab_can_do_is_refused_first(trouble: Trouble, tmp_path: Path) -> None:
    script = '[nemesis]\nkind = "steps"\n[[nemesis.step]]\ndo = "power-loss"\nnode = "n1"\n'
    with pytest.raises(UsageError, match="power-loss, which the process world cannot do: it is troubled"):
        make_runs(trouble, tmp_path, script)
    assert trouble.done == []


def test_nodes_of_an_interrupted_run_are_not_kept(trouble: Trouble, tmp_path: Path) -> None:
    trouble.at_up = interrupt
    with pytest.raises(Interrupted):
        make_runs(trouble, tmp_path, keep=True)
    assert trouble.done == ["open", "world", "up", "down", "close"]


def test_an_invocation_is_made_by_one_process_at_a_time(trouble: Trouble, tmp_path: Path) -> None:
    store, plan, silent = Store(tmp_path / "store"), campaign(TWO_RUNS), Progress(quiet=True)
    plan_invocation(store, plan, world="process")
    first, second = (resume_invocation(store, plan, world="process") for _ in range(2))
    assert first.todo == second.todo

    def meddle() -> None:
        with pytest.raises(UsageError, match="is under way in another process"):
            make(trouble, store, second, silent)
        with pytest.raises(UsageError, match="is under way in another process"):
            resume_invocation(store, plan, world="process")

    trouble.at_open = meddle
    make(trouble, store, first, silent)
    left = {path: path.read_bytes() for path in store.campaign_dir("x").rglob("*") if path.is_file()}
    assert trouble.done.count("open") == 1
    with pytest.raises(UsageError, match="-main-1 was made by another process meanwhile"):
        make(trouble, store, second, silent)
    assert left == {path: path.read_bytes() for path in store.campaign_dir("x").rglob("*") if path.is_file()}
    assert trouble.done.count("open") == 1, "no lab is opened for nothing"
