"""Paths on a provisioned machine. The playbooks make them; a run writes the configuration."""

from orchestrator.machine.ssh import ScriptUnit, SystemdUnit, Unit

PROGRAMS = "/opt/brownout"
LAUNCHER = "/opt/brownout/bin/service"
ETC = "/etc/brownout"
SERVICE = f"{ETC}/service.sh"
"""The script that becomes the service; a run writes it."""
SERVICE_PORT = f"{ETC}/service.port"
"""The file with the port that shows that the service serves; a run writes it."""
MARK = "BROWNOUT_SERVICE"
"""An environment variable of every service that a run has started, to recognize leftovers."""
FILES = "/opt/brownout/files"
"""The files of systems, each version in its own directory."""
PYTHON_PATH = "/opt/brownout/app:/opt/brownout/site"

RUNTIME = "/run/brownout"
"""Emptied by a boot."""
SERVICE_LOG = f"{RUNTIME}/service.log"
PID_FILE = f"{RUNTIME}/service.pid"

DATA = "/data"
DEFAULT_PORT = 9092
"""The default, unless a run's system has another one."""


def service_unit(*, systemd: bool) -> Unit:
    """The unit by which a machine starts its service, with or without systemd as its first process."""
    if systemd:
        return SystemdUnit()
    return ScriptUnit(command=(LAUNCHER,), directory="/", log=SERVICE_LOG, pid_file=PID_FILE)
