"""Where things lie on a provisioned machine. The playbooks make them; a run writes the configuration."""

from __future__ import annotations

from orchestrator.machine.ssh import ScriptUnit, SystemdUnit, Unit

LAUNCHER = "/opt/brownout/bin/broker"
PROPERTIES = "/etc/brownout/server.properties"
ARGUMENTS = "/etc/brownout/broker.args"
"""The broker's arguments besides `--config`, on one line."""

RUNTIME = "/run/brownout"
"""Gone after a boot."""
TRACE = f"{RUNTIME}/events.jsonl"
SERVICE_LOG = f"{RUNTIME}/service.log"
PID_FILE = f"{RUNTIME}/broker.pid"

DATA = "/data"
PORT = 9092


def broker_unit(*, systemd: bool) -> Unit:
    """How a machine starts its broker, with systemd as its first process or without."""
    if systemd:
        return SystemdUnit()
    return ScriptUnit(command=(LAUNCHER,), directory="/", log=SERVICE_LOG, pid_file=PID_FILE)
