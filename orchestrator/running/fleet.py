"""The client processes of one run: started, put under load, probed, and ended."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from history.journal import Journal
from orchestrator.campaign.plan import PlannedRun
from orchestrator.errors import RunError
from orchestrator.worlds.services import in_parallel
from workloads.process import ClientError, ClientProcess, Role
from workloads.settings import MESSAGE_TIMEOUT_S, ClientSettings

READY_S = 30.0
STOP_S = MESSAGE_TIMEOUT_S + 8.0
SESSION = 1
CONSUMER_SHARE = 0.3  # of the load's operations


class Fleet:
    """Call everything from the main thread: the kernel ends a client with the thread that started it."""

    def __init__(
        self, planned: PlannedRun, run_dir: Path, bootstrap: str, journal: Journal, time_scale: float = 1.0
    ) -> None:
        self._planned = planned
        self._run_dir = run_dir
        self._bootstrap = bootstrap
        self._journal = journal
        self._time_scale = time_scale
        self._number = 0
        self._clients: list[ClientProcess] = []
        self._load: list[ClientProcess] = []
        self._probe: ClientProcess | None = None
        self._readers = 0
        self._completed = False
        self._loading = False
        self._unresolved = 0

    def start_first(self) -> None:
        """Start who makes the first append: the producers, or the probe where there are none. `wait_ready` waits."""
        workload = self._planned.campaign.workload
        share = 1 - CONSUMER_SHARE if workload.consumers else 1.0
        for index in range(workload.producers):
            rate = workload.rate * share / workload.producers
            self._load.append(self._start("producer", f"producer-{index + 1}", rate))
        if not workload.producers:
            self._probe = self._start("producer", "probe", 1.0)

    def complete(self) -> None:
        """Start everybody else, unless that was done: the consumers, at once under load, and the probe."""
        if self._completed:
            return
        self._completed = True
        workload = self._planned.campaign.workload
        share = CONSUMER_SHARE if workload.producers else 1.0
        for index in range(workload.consumers):
            consumer = self._start("consumer", f"consumer-{index + 1}", workload.rate * share / workload.consumers)
            consumer.start()
            self._load.append(consumer)
            self._loading = True
        if self._probe is None:
            self._probe = self._start("producer", "probe", 1.0)

    @property
    def probe(self) -> ClientProcess:
        """The producer that appends on command."""
        if self._probe is None:
            raise RunError("the probe was not started yet")
        return self._probe

    def start_reader(self) -> ClientProcess:
        """A fresh client for complete reads."""
        self._readers += 1
        return self._start("reader", f"reader-{self._readers}", 1.0)

    def wait_ready(self) -> None:
        for client in self._clients:
            client.wait_ready(READY_S * self._time_scale)

    def begin_load(self) -> None:
        """Put the producers under load."""
        for client in self._load:
            client.start()
        self._loading = True

    def end_load(self) -> None:
        """Stop issuing operations and wait until each one under way has its outcome."""
        if not self._loading:
            return
        self._loading = False
        for client in self._load:
            client.stop()
        for client in self._load:
            self._unresolved += client.wait_stopped(STOP_S * self._time_scale)
        if self._unresolved:
            self._journal.note(f"{self._unresolved} appends were left without an outcome; they count as info")

    @property
    def counts(self) -> dict[str, int]:
        """Operations so far, by outcome, over all clients."""
        return {name: sum(client.counts[name] for client in self._clients) for name in ("ok", "fail", "info")}

    @property
    def first_ack_ns(self) -> int | None:
        """When the load's first append was acknowledged."""
        times = [client.first_ack_ns for client in self._load if client.first_ack_ns is not None]
        return min(times, default=None)

    def check(self) -> None:
        """Raises `ClientError` when a client has ended by itself."""
        for client in self._load:
            if not client.alive:
                last = f": {client.trouble[-1]}" if client.trouble else ""
                raise ClientError(f"client {client.name} ended in the middle of the run{last}")

    def probe_writes(self, timeout_s: float) -> None:
        """Append to every partition until it acknowledges. Raises `RunError` for one that does not."""
        for partition in range(self._planned.campaign.workload.partitions):
            give_up = time.monotonic() + timeout_s
            while True:
                result = self.probe.append(partition, acks=-1, count=1, timeout_s=3.0 * self._time_scale)
                if result and result[-1]["outcome"] == "ok":
                    break
                if time.monotonic() > give_up:
                    error = result[-1]["error"] if result else "no answer"
                    raise RunError(
                        f"partition {partition} takes no writes {timeout_s:g} s after everything was healed: {error}"
                    )

    def read_everything(self, reader: ClientProcess, timeout_s: float) -> list[Mapping[str, Any]]:
        """Read every partition to its end. Raises `RunError` for one that cannot be read whole."""
        reader.wait_ready(READY_S * self._time_scale)
        reader.phase("final")
        answers = []
        for partition in range(self._planned.campaign.workload.partitions):
            answer = reader.read_all(partition, timeout_s)
            if not answer["complete"]:
                raise RunError(
                    f"the final read of partition {partition} came to offset {answer['read']} of {answer['end']} "
                    f"within {timeout_s:g} s"
                )
            answers.append(answer)
        return answers

    def close(self) -> None:
        """End every client; their records are whole afterwards."""
        in_parallel(self._clients, ClientProcess.close)
        for client in self._clients:
            for text in client.trouble:
                self._journal.note(f"client {client.name}: {text}")

    def kill(self) -> None:
        """End every client at once."""
        for client in self._clients:
            client.kill()

    def _start(self, role: Role, name: str, rate: float) -> ClientProcess:
        self._number += 1
        workload = self._planned.campaign.workload
        settings = ClientSettings(
            client=name,
            process=self._number,
            producer=self._number if role == "producer" else -1,
            session=SESSION,
            seed=self._planned.derived_seed(f"client/{name}"),
            bootstrap=self._bootstrap,
            topic=workload.topic,
            partitions=workload.partitions,
            directory=str(self._run_dir / "history" / "operations"),
            rate=rate,
            record_bytes=workload.record_bytes,
            time_scale=self._time_scale,
        )
        client = ClientProcess(role, settings, self._run_dir / "clients" / f"{name}.log")
        self._clients.append(client)
        return client
