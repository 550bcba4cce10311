"""Where things lie on a provisioned machine. The playbooks make them; a run writes the configuration."""

from __future__ import annotations

from orchestrator.machine.ssh import ScriptUnit, SystemdUnit, Unit

PROGRAMS = "/opt/brownout"
LAUNCHER = "/opt/brownout/bin/service"
ETC = "/etc/brownout"
SERVICE = f"{ETC}/service.sh"
"""The script that becomes the service; a run writes it."""
SERVICE_PORT = f"{ETC}/service.port"
"""The port by which it is known to serve; a run writes it, too."""
MARK = "BROWNOUT_SERVICE"
"""An environment variable of every service that a run has started, by which one that was left is known."""
FILES = "/opt/brownout/files"
"""The files of systems, each version in a directory of its own."""
PYTHON_PATH = "/opt/brownout/app:/opt/brownout/site"

RUNTIME = "/run/brownout"
"""Gone after a boot."""
SERVICE_LOG = f"{RUNTIME}/service.log"
PID_FILE = f"{RUNTIME}/service.pid"

DATA = "/data"
DEFAULT_PORT = 9092
"""Until a run's system says another one."""


def service_unit(*, systemd: bool) -> Unit:
    """How a machine starts its service, with systemd as its first process or without."""
    if systemd:
        return SystemdUnit()
    return ScriptUnit(command=(LAUNCHER,), directory="/", log=SERVICE_LOG, pid_file=PID_FILE)
