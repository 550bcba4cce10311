"""Power cuts of namespace nodes with marked disks. A program, like `tests.worlds.scenarios`."""

import sys
from typing import Any

from nemeses import Fault, Nemesis
from tests.worlds.scenarios import tell, world
from tests.worlds.support import send


def cuts(run_dir: str, filesystem: str) -> Any:
    """One node and all of them, cleanly and torn, again and again; the evidence of each heal."""
    seen = []
    with world(run_dir, 2, filesystem=filesystem) as made:
        made.start_services()
        nemesis = Nemesis(made.site)
        armed = nemesis.arm()
        for number in range(8):
            for node in made.nodes:
                send(node, f"not synced {number}")
            targets = ("n1",) if number % 2 else ("n1", "n2")
            fault = Fault("power-loss", targets, parameters={"tear": number if number >= 4 else None})
            injected, healed, again = nemesis.inject(fault), nemesis.heal(fault), nemesis.heal(fault)
            seen.append([each.to_json() for each in (injected, healed, again)])
        found = made.hosts["n1"].run("ls -A /data; ls -A /data/.brownout").stdout.split()
    return {"armed": armed.to_json(), "cuts": seen, "found": found}


def cuts_of_a_full_disk(run_dir: str, filesystem: str) -> Any:
    """Two cuts of a node whose disk has no space left, cleanly and torn; the evidence of each."""
    seen = []
    with world(run_dir, 1, filesystem=filesystem) as made:
        made.start_services()
        nemesis, host = Nemesis(made.site), made.hosts["n1"]
        nemesis.arm()
        for number, tear in enumerate((None, 7)):
            host.run(
                f"for size in 1M 4k 1; do dd if=/dev/zero bs=$size of=/data/fill-{number}-$size; done", timeout_s=60
            )
            is_full = not host.run("printf %4096s x > /data/more").ok
            fault = Fault("power-loss", ("n1",), parameters={"tear": tear})
            seen.append([is_full, nemesis.inject(fault).to_json(), nemesis.heal(fault).to_json()])
    return seen


def at_stake(run_dir: str, filesystem: str) -> Any:
    """What is said of a cut that was to take a tail: one after the kernel has written it back, and one before."""
    seen = []
    with world(run_dir, 1, filesystem=filesystem) as made:
        made.start_services()
        nemesis, (node,) = Nemesis(made.site), made.nodes
        nemesis.arm()
        for early in (True, False):
            send(node, "!synced")
            send(node, "not synced")
            if early:
                made.hosts["n1"].run("sync -f /data")
            fault = Fault("power-loss", ("n1",), parameters={"tear": None, "loses": "log/topic-0/*.log"})
            seen.append([nemesis.inject(fault).to_json(), nemesis.heal(fault).to_json()])
    return seen


if __name__ == "__main__":
    tell(globals()[sys.argv[1]](*sys.argv[2:]))
