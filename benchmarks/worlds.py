"""Durations in the namespace world: start, power cycle, faults over warm SSH, stop. Needs root.

    python -m benchmarks.worlds [--rounds 10] [--filesystem ext4]

Prints median, minimum and maximum of each, in milliseconds. A minimal listener replaces the broker, so that the figures
do not include it.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from nemeses import Fault, Nemesis
from orchestrator.machine.sandbox import current_sandbox, enter_sandbox
from orchestrator.worlds.base import WorldSpec
from orchestrator.worlds.namespaces.lab import NamespaceWorld
from systems.service import Place, Service

SIZES = (3, 5)
PORT = 9092
# Without site packages it listens after about 20 ms; the start of a broker is not part of the measurement.
LISTENER = (
    sys.executable,
    "-S",
    "-c",
    f"import socket; s = socket.create_server(('', {PORT}))\nwhile True: s.accept()[0].close()",
)


class Listeners:
    """The system on every node: only a listener."""

    collected: tuple[str, tuple[str, ...]] = (".", ())
    files_dir = ""
    files_name = "listeners"

    def ports(self, number: int) -> Mapping[str, int]:
        del number
        return {"client": PORT}

    def service(self, node: Place, nodes: Sequence[Place], time_scale: float = 1.0) -> Service:
        del node, nodes, time_scale
        return Service("listener", LISTENER)


class Times:
    """Durations in milliseconds, by operation."""

    def __init__(self) -> None:
        self._all: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._all[what].append((time.perf_counter() - started) * 1e3)

    def print(self) -> None:
        print(f"{'':44}{'median':>9}{'least':>9}{'greatest':>9}   ms")
        for what, values in self._all.items():
            print(f"{what:44}{statistics.median(values):9.1f}{min(values):9.1f}{max(values):9.1f}")


def measure(rounds: int, filesystem: str, times: Times) -> None:
    for size in SIZES:
        for _ in range(rounds):
            directory = Path(tempfile.mkdtemp(prefix="brownout-benchmark-"))
            try:
                one_world(size, filesystem, directory, times)
            finally:
                shutil.rmtree(directory)


def one_world(size: int, filesystem: str, directory: Path, times: Times) -> None:
    spec = WorldSpec("benchmark", directory, size, Listeners(), filesystem=filesystem)
    world = NamespaceWorld(spec)
    title = f"{size} nodes: "
    with times.of(title + "up, to the last sshd banner"):
        world.up()
    with times.of(title + "all connected by SSH, after that"):
        for host in world.hosts.values():
            host.run("true")
    world.start_services()
    host = world.hosts["n1"]
    with times.of(title + "a command over warm SSH"):
        host.run("true")
    with times.of(title + "power cut of one"):
        world.power.cut(["n1"])
    with times.of(title + "power restored to one, to sshd's banner"):
        world.power.restore(["n1"])
    host.start_service()
    with times.of(title + "power cut of all"):
        world.power.cut(list(world.hosts))
    with times.of(title + "power restored to all"):
        world.power.restore(list(world.hosts))
    world.start_services()
    with times.of(title + "cut into halves, one nft transaction"):
        world.network.cut({("n1", "n2"), ("n2", "n1")})
    with times.of(title + "heal, one nft transaction"):
        world.network.heal()
    nemesis = Nemesis(world.site)
    faults = (
        Fault("kill", ("n1",)),
        Fault("pause", ("n1",)),
        Fault("partition-one", ("n1",)),
        Fault("power-loss", ("n1",)),
    )
    for fault in faults:
        with times.of(f"{title}{fault.kind}, with evidence"):
            confirmed(nemesis.inject, fault)
        with times.of(f"{title}{fault.kind} healed, with evidence"):
            confirmed(nemesis.heal, fault)
    with times.of(title + "down"):
        world.down()


def confirmed(action: Callable[[Fault], object], fault: Fault) -> None:
    evidence = action(fault)
    assert getattr(evidence, "confirmed", False), evidence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--filesystem", default="ext4")
    arguments = parser.parse_args()
    if current_sandbox() is None:
        enter_sandbox([sys.executable, "-m", "benchmarks.worlds", *sys.argv[1:]])
    import fabric  # noqa: F401 - imported before the clock runs: a run imports it while its nodes boot

    times = Times()
    measure(arguments.rounds, arguments.filesystem, times)
    times.print()


if __name__ == "__main__":
    main()
