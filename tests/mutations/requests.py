"""Mutations after which settings, leaders or times of a plan do not show in the evidence."""

import json
from collections.abc import Callable
from typing import Final

from tests.mutations.mutation import Catalog, fails, unknown
from tests.mutations.segments import split, summed, with_epoch
from tests.mutations.stored import Line, Stored

log = Catalog("requested settings of the log", base="log")
tiered = Catalog("requested settings of tiered storage", base="tiered")
simulated = Catalog("leaders and times of the simulated", base="simulated")
CATALOGS: Final = (log, tiered, simulated)


def _plan(pattern: str, replacement: str) -> Callable[[Stored], None]:
    return lambda run: run.plan(pattern, replacement)


log.add("producers were to be idempotent", _plan("^idempotent = false", "idempotent = true"), unknown("idempotent"))
log.add(
    "brokers were to stamp records",
    _plan(r"^\[workload.topic_settings\]", '[workload.topic_settings]\n"message.timestamp.type" = "LogAppendTime"'),
    unknown("timestamp"),
)
tiered.add(
    "producers were not to be idempotent", _plan("^idempotent = true", "idempotent = false"), unknown("idempotent")
)
tiered.add("segments were to be smaller", _plan('^"segment.bytes" = .*', '"segment.bytes" = "300"'), unknown("segment"))
tiered.add(
    "the topic was to be compacted",
    _plan('^(?="segment.bytes")', '"cleanup.policy" = "compact"\n'),
    unknown("cleanup.policy"),
)
simulated.add("the load was to last longer", _plan("^duration_s = 8.0", "duration_s = 60.0"), unknown("load lasted"))


@simulated(fails("epoch-never-led"))
def all_replicas_have_an_epoch_that_nobody_led(run: Stored) -> None:
    for node in run.nodes():
        directory = run / f"nodes/{node}/data/log-0"
        segment = directory / f"{0:020d}.log"
        batches = split(segment.read_bytes())
        last = batches[-1]
        segment.write_bytes(b"".join([*batches[:-1], summed(with_epoch(last, 999))]))
        lines = (directory / "leader-epoch-checkpoint").read_text().splitlines()
        offset = int.from_bytes(last[:8], "big")
        kept = [line for line in lines[2:] if int(line.split()[1]) < offset]
        text = [*kept, f"999 {offset}"]
        (directory / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(text)), *text]) + "\n")


@simulated(fails("reported-value-fell"))
def a_leaders_high_watermark_falls_within_its_epoch(run: Stored) -> None:
    for node in run.nodes():
        path = run / f"nodes/{node}/events.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        leads = False
        progress: list[Line] = []
        for line in lines:
            if line.get("topic") == "log" and line["event"] == "partition_role":
                leads, progress = line["role"] == "leader", []
            if leads and line.get("topic") == "log" and line["event"] == "replica_progress":
                progress.append(line)
            if len(progress) == 3:
                progress[-1]["high_watermark"] = progress[0]["high_watermark"] - 1
                path.write_text("".join(json.dumps(each) + "\n" for each in lines))
                return
    raise AssertionError("no leader reported its progress three times")
