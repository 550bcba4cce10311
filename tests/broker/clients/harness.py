"""Brokers as processes on loopback, and waiting for conditions with a deadline."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from systems.local_ports import LocalPorts

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 120.0  # seconds: far beyond what anything takes, so that a slow machine does not fail a test


def until(condition: Callable[[], object], what: str, deadline: float = PATIENCE) -> None:
    """Return once `condition` is true; fail with `what` when it is not in time."""
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, f"not within {deadline:g} s: {what}"
        time.sleep(0.01)


_PORTS = LocalPorts(f"{os.getpid()}")


def free_ports(count: int) -> list[int]:
    """Ports without a listener, which no other process of tests or runs takes while this process lives."""
    return [_PORTS.take() for _ in range(count)]


class BrokerProcess:
    """One broker: its configuration file, its data directory and, while it runs, its process."""

    def __init__(
        self,
        directory: Path,
        node_id: int,
        ports: tuple[int, int],
        voters: str,
        settings: Mapping[str, object],
    ) -> None:
        """`ports`: that for clients and that for controllers."""
        directory.mkdir(parents=True, exist_ok=True)
        self.node_id = node_id
        self.port, self.controller_port = ports
        self.log_dir = directory / "log"
        self.config = directory / "server.properties"
        self.output = directory / "broker.log"
        self.events = directory / "events.jsonl"
        properties = {
            "node.id": node_id,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "quorum.voters": voters,
            "log.dir": self.log_dir,
            "trace.path": self.events,
            **settings,
        }
        self.config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, *options: str, descriptors: int | None = None) -> None:
        """`descriptors`: how many the process may have open; None: as many as this one."""

        def limit() -> None:
            if descriptors is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "broker", "--config", str(self.config), *options],
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=limit,
            )

    def wait_ready(self) -> None:
        """Until the broker says that it serves; fails at once when it has ended instead."""
        until(self._is_ready, f"broker {self.node_id} is ready")

    def _is_ready(self) -> bool:
        assert self.alive, f"broker {self.node_id} ended:\n{self.output.read_text()}"
        return " is ready" in self.output.read_text()

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE)
        self.output.write_bytes(b"")

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        self.output.write_bytes(b"")
        return code

    def resident_bytes(self) -> int:
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


class Cluster:
    """Some brokers that form one quorum."""

    def __init__(self, directory: Path, size: int, settings: Mapping[str, object]) -> None:
        self._ports = LocalPorts(str(directory))
        ports = [(self._ports.take(), self._ports.take()) for _ in range(size)]
        voters = ",".join(f"{number}@127.0.0.1:{controllers}" for number, (_, controllers) in enumerate(ports, 1))
        self.brokers = {
            number: BrokerProcess(directory / f"n{number}", number, pair, voters, settings)
            for number, pair in enumerate(ports, 1)
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def start(self, *options: str) -> None:
        for broker in self.brokers.values():
            broker.start(*options)
        for broker in self.brokers.values():
            broker.wait_ready()

    def stop(self) -> None:
        for broker in self.brokers.values():
            if broker.process is not None and broker.process.poll() is None:
                broker.process.kill()
                broker.process.wait(PATIENCE)
        self._ports.release()


@contextmanager
def cluster(directory: Path, size: int = 1, **settings: object) -> Iterator[Cluster]:
    """Running brokers; setting names have `_` for the dots of their keys."""
    nodes = Cluster(directory, size, {key.replace("_", "."): value for key, value in settings.items()})
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.stop()
