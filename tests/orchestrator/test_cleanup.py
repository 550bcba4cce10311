"""Cleanup: every step is tried, the cause is raised, and Ctrl-C is never lost."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.cleanup import always, clean_up, described, on_failure
from orchestrator.errors import Interrupted, RunError
from orchestrator.running.interrupts import Interrupts
from tests.orchestrator.test_interrupts import interrupt, quiet


def breaks(text: str) -> Callable[[], None]:
    def step() -> None:
        raise OSError(text)

    return step


def test_each_step_is_tried_and_the_first_error_has_the_others_as_notes() -> None:
    done = list[str]()
    with pytest.raises(OSError, match="one") as raised:
        clean_up(breaks("one"), lambda: done.append("middle"), breaks("two"), lambda: done.append("end"))
    assert done == ["middle", "end"]
    assert described(raised.value) == "one; cleaning up failed: two"


@pytest.mark.parametrize("cause", [RunError("cause"), Interrupted("cause"), KeyError("cause")])
def test_an_error_of_a_step_is_a_note_of_the_cause(cause: BaseException) -> None:
    def fail() -> None:
        raise cause

    for body in (on_failure(breaks("broke")), always(breaks("broke"))):
        cause.__notes__ = []
        with pytest.raises(type(cause)) as raised, body:
            fail()
        assert raised.value is cause
        assert cause.__notes__ == ["cleaning up failed: broke"]


def test_an_interrupt_in_a_cleanup_step_repeats_the_step_and_is_raised_after_all_steps() -> None:
    done = list[str]()

    def step() -> None:
        done.append("step")
        if len(done) == 1:
            interrupt()

    def fail() -> None:
        raise RunError("cause")

    with pytest.raises(Interrupted), quiet().installed(), on_failure(step, lambda: done.append("next")):
        fail()
    assert done == ["step", "step", "next"]


def test_an_interrupt_behind_a_shield_wins_over_an_error() -> None:
    interrupts, done = quiet(), list[str]()

    def step() -> None:
        interrupt()
        done.append("to the end")

    def fail() -> None:
        raise RunError("cause")

    with pytest.raises(Interrupted) as raised, interrupts.installed(), always(step, shield=interrupts.shielded):
        fail()
    assert done == ["to the end"]
    assert str(raised.value.__cause__) == "cause"


def test_cleanup_after_a_successful_body_happens_only_with_always() -> None:
    done = list[str]()
    with on_failure(lambda: done.append("no")), always(lambda: done.append("yes")):
        pass
    assert done == ["yes"]
    with pytest.raises(OSError, match="broke"), always(breaks("broke")):
        pass


def test_the_count_of_interrupts_reveals_a_lost_one() -> None:
    interrupts = Interrupts(lambda: None, lambda: None)
    with interrupts.installed(), pytest.raises(Interrupted):
        interrupt()
    assert interrupts.requested


CAMPAIGN = """
name = "asked"
[topology]
world = "{world}"
[workload]
partitions = 1
producers = 1
consumers = 0
duration_s = 0.5
"""
STAGES = [
    "{world}.up",
    "{module}.keep_configuration",
    "orchestrator.worlds.base.World.prepare_services",
    "orchestrator.worlds.base.World.start_services",
    "orchestrator.running.clients.Fleet.start_first",
    "orchestrator.running.cluster.Cluster.await_view",
    "orchestrator.running.cluster.Cluster.create_topic",
    "orchestrator.running.clients.Fleet.wait_ready",
    "orchestrator.running.run._arm",
    "orchestrator.running.clients.Fleet.begin_load",
]
WAYS = ("interrupt", "interrupt, then an error", "an error, and an interrupt in the cleanup")
PROGRAM = """
import os, pkgutil, signal, sys
from orchestrator.command.line import main

stage, way, cleanup, *words = sys.argv[1:]

def place(name):
    holder, _, attribute = name.rpartition(".")
    return pkgutil.resolve_name(holder), attribute

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

def struck(*_args, **_options):
    if not way.startswith("an error"):
        try:
            interrupt()
        except KeyboardInterrupt:
            if way == "interrupt":
                raise
    raise OSError("the stage broke")

def broken(self, times=[]):
    times.append(1)
    if way.startswith("an error") and len(times) == 1:  # the second Ctrl-C would end this process at once
        interrupt()
    real(self)
    raise KeyError("the cleanup broke")

holder, attribute = place(cleanup)
real = getattr(holder, attribute)
setattr(holder, attribute, broken)
holder, attribute = place(stage)
setattr(holder, attribute, struck)
sys.exit(main(words))
"""


WORLDS = {
    "process": "orchestrator.worlds.process.lab.ProcessWorld",
    "simulation": "orchestrator.worlds.simulation.lab.SimulationWorld",
}
EACH = [("process", stage, WAYS[1]) for stage in STAGES]
EACH += [("process", STAGES[1], way) for way in (WAYS[0], WAYS[2])]
EACH += [("process", STAGES[5], way) for way in (WAYS[0], WAYS[2])]
EACH += [("simulation", STAGES[1], way) for way in WAYS]


@pytest.mark.rotating(12)
@pytest.mark.parametrize(("world", "stage", "way"), EACH)
def test_ctrl_c_ends_the_campaign_at_every_stage_of_set_up(tmp_path: Path, world: str, stage: str, way: str) -> None:
    """Even if the cleanup raises, no further run starts, and the run reports the interruption."""
    campaign, store = tmp_path / "asked.toml", tmp_path / "store"
    campaign.write_text(CAMPAIGN.format(world=world))
    world_class = WORLDS[world]
    place = stage.format(world=world_class, module=world_class.rpartition(".")[0])
    words = ["run", str(campaign), "--seeds", "1-3", "--store", str(store), "--engine", "in-process", "--no-plots"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, place, way, f"{world_class}.down", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 130, done.stdout + done.stderr
    runs = [path.parent for path in (store / "asked").glob("*/run.toml")]
    assert len(runs) == 1
    lines = (runs[0] / "history" / "journal.jsonl").read_text().splitlines()
    said = [line["text"] for line in map(json.loads, lines) if line.get("unfinished")]
    assert any("interrupted" in text or "the stage broke" in text for text in said), said
    assert not (runs[0] / "world").exists()
    assert not (runs[0] / "verdict.json").exists(), "it can be resumed"
