"""A machine that a test plays: its clocks, its queue of packets and its shell, in a time that only commands spend."""

import contextlib
import json
import re
import socketserver
import threading
from collections.abc import Collection, Iterator
from typing import Any

from nemeses.ports import HostError, MachineState, Result
from nemeses.scheduling import ThreadScheduler
from tests.nemeses.fakes import FakeHost

ROUND_TRIP_S = 0.02


class FakeTime(ThreadScheduler):
    """A time in which only those who sleep make it pass."""

    def __init__(self) -> None:
        self.now = 5_000.0
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.now += seconds


class FakeMachine(FakeHost):
    """Has separate clocks and netem. The attributes that end in `_broken` are ways of ignoring a request."""

    def __init__(self, name: str, clock: FakeTime, *, offset_s: float = 0.0) -> None:
        super().__init__(name)
        self.clock = clock
        self.offset_s = offset_s
        self.uptime_ahead_s = -clock.now + 100.0
        self.stopped = False
        self.files: set[str] = set()
        self.device = "eth0"
        self.queue: dict[str, Any] | None = None
        self.connect_ms = 2.0
        self.drops = self.packets = 0
        self.date_broken = self.steady_broken = self.delay_broken = self.loss_broken = self.tc_broken = False
        self.deletion_broken = self.replacing_broken = self.unreached = False
        self.peers: dict[str, FakeMachine] = {}
        """Those whose queues make a connect longer too, by address."""

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        if self.stopped:
            self.clock.sleep(timeout_s)
            raise HostError(f"{self.name}: did not end within {timeout_s:g} s")
        if (seen := self.look(command)) is not None:
            return seen
        self.commands.append(command)
        self.clock.sleep(ROUND_TRIP_S / 2)
        code, answer = self._answer(command)
        self.clock.sleep(ROUND_TRIP_S / 2)
        return Result(code, answer if code == 0 else "", "" if code == 0 else answer)

    def _answer(self, command: str) -> tuple[int, str]:
        if "/proc/uptime" in command:
            real, up = self.clock.wall() + self.offset_s, self.clock.now + self.uptime_ahead_s
            return 0, f"switches=1\nup={up:.2f}\nreal={real:.9f}\n"
        if found := re.search(r"date -s '([-+.\d]+) seconds'", command):
            self.files.add("clock-moved")
            if self.date_broken:
                return 0, "date: cannot set date: Operation not permitted\n"
            self.offset_s += float(found[1])
            self.uptime_ahead_s += float(found[1]) if self.steady_broken else 0.0
            return 0, "set\n"
        if command.endswith("> /run/brownout/clock-moved"):
            self.files.add("clock-moved")
            return 0, ""
        if command.startswith("rm -f /run/brownout/clock-moved"):
            self.files.discard("clock-moved")
            return 0, ""
        if command.startswith("[ -e /run/brownout/clock-moved ]"):
            return 0, f"moved={'yes' if 'clock-moved' in self.files else 'no'}\n"
        return self._answer_about_packets(command)

    def _answer_about_packets(self, command: str) -> tuple[int, str]:
        if "ip -o route get" in command:
            return 0, f"10.0.0.2 dev {self.device} src 10.0.0.1 uid 0 \\    cache\n"
        if found := re.search(r"tc qdisc replace dev (\S+) root handle (\S+) netem limit \d+ (.*) && echo", command):
            if self.tc_broken:
                return 2, "Error: Specified qdisc kind is unknown.\n"
            if self.replacing_broken and self.queue is not None:
                return 0, "applied=yes\n"
            delay = re.search(r"delay ([\d.]+)ms ([\d.]+)ms", found[3])
            loss = re.search(r"loss ([\d.]+)%", found[3])
            self.queue = {
                "kind": "netem",
                "handle": found[2],
                "dev": found[1],
                "options": found[3],
                "delay_ms": float(delay[1]) - float(delay[2]) if delay else 0.0,
                "loss": float(loss[1]) / 100 if loss else 0.0,
            }
            return 0, "applied=yes\n"
        if "tc qdisc del" in command:
            self.queue = self.queue if self.deletion_broken else None
            return 0, ""
        if "tc -s -j qdisc show" in command:
            own = [{"kind": "fq_codel", "handle": "0:", "dev": "eth1", "drops": 0, "packets": 9}]
            mine = [] if self.queue is None else [{**self.queue, "drops": self.drops, "packets": self.packets}]
            return 0, f"queues={json.dumps(own + mine)}\n"
        if "EPOCHREALTIME" in command:
            if self.unreached:
                return 0, "done=yes\n"
            late = self._late_ms() + sum(peer._late_ms() for address, peer in self.peers.items() if address in command)
            times = [self.connect_ms + late + extra for extra in (3.0, 0.0, 7.0)]
            return 0, "".join(f"connect{n}={round(ms * 1000)}\n" for n, ms in enumerate(times)) + "done=yes\n"
        if found := re.search(r"i < (\d+);", command):
            lost = 0 if self.loss_broken or self.queue is None else round(int(found[1]) * self.queue["loss"])
            self.drops += lost
            self.packets += int(found[1]) - lost
            return 0, f"sent={found[1]}\n"
        return 0, "port=open\nstart=7\nbefore=S\nsignalled=yes\nafter=S\n"

    def _late_ms(self) -> float:
        return float(self.queue["delay_ms"]) if self.queue and not self.delay_broken else 0.0


class FakeSuspender:
    """Stops the machines it was given. `does` replaces what it does for what it was asked: to be caught lying."""

    def __init__(self, *machines: FakeMachine, does: MachineState | None = None, says: MachineState | None = None):
        self._machines = {machine.name: machine for machine in machines}
        self._does, self._says = does, says
        self._states: dict[str, tuple[MachineState, float]] = {}

    def stall(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        return self._stop(names, "stalled")

    def freeze(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        return self._stop(names, "frozen")

    def resume(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        for name in names:
            state, since = self._states.pop(name, ("running", 0.0))
            machine = self._machines[name]
            machine.stopped = False
            if (self._does or state) == "frozen" and state != "running":
                machine.offset_s -= machine.clock.now - since
                machine.uptime_ahead_s -= machine.clock.now - since
        return {}

    def state(self, name: str) -> MachineState:
        return self._says or self._states.get(name, ("running", 0.0))[0]

    def _stop(self, names: Collection[str], state: MachineState) -> dict[str, dict[str, Any]]:
        for name in names:
            self._states[name] = state, self._machines[name].clock.now
            self._machines[name].stopped = self._does != "running"
        return {name: {"by": "test"} for name in names}


@contextlib.contextmanager
def greeting(machine: FakeMachine) -> Iterator[None]:
    """A port on which the machine says a word to everybody, as long as it is not stopped."""

    class Greeter(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            if not machine.stopped:
                self.request.sendall(b"SSH-2.0-test\r\n")
            else:
                self.request.recv(1)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Greeter) as server:
        server.daemon_threads = True
        machine.probe_port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
