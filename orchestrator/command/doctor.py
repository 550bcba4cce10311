"""`brownout doctor`: checks what this machine can run, by trying it, and how to install what is missing."""

import argparse
import json
import os
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from installation import extras
from installation.commands import command
from installation.files import PROJECT_ROOT, default_store, is_installed
from orchestrator.command.shared.declaration import Command
from orchestrator.command.shared.options import json_option
from orchestrator.errors import EXIT_PASS, EXIT_UNKNOWN, UsageError
from orchestrator.machine import packages as system_packages
from orchestrator.printing import show, verdict_line

_LIBRARIES = (
    "confluent-kafka",
    "crc32c",
    "cramjam",
    "fabric",
    "jinja2",
    "kazoo",
    "matplotlib",
    "msgspec",
    "numpy",
    "paramiko",
    "pyarrow",
    "rich",
    "shtab",
    "tornado",
    "uvloop",
)
"""Libraries of every installation; `tests/orchestrator/test_doctor.py` compares them with pyproject.toml."""
_FREE_BYTES = 2 << 30

EVERY_WORLD = "every world"
NAMESPACES = "namespace world"
VIRTUAL_MACHINES = "virtual machines"
INVENTORY = "inventory"
SPARK = "engine spark"


@dataclass(frozen=True)
class DoctorFinding:
    """The result of one check. `part`: the world or option that needs it; `remedy`: empty if `met`."""

    part: str
    name: str
    met: bool
    detail: str
    remedy: str = ""


def examine() -> list[DoctorFinding]:
    """All checks, in the order in which a user should apply the remedies."""
    return [*_python(), *_spark(), _disk(), _open_files(), *_namespaces(), *_virtual_machines(), *_inventory()]


def main(options: argparse.Namespace) -> int:
    """Print the results; exit 0 when a campaign can run in some world, else 2."""
    if options.clean:
        _clean()
    findings = examine()
    worlds, absent = able(findings), system_packages.missing_for_campaigns()
    if options.json:
        content = {
            "can_run": worlds["process"],
            **worlds,
            "missing_packages": absent,
            "findings": [asdict(finding) for finding in findings],
        }
        print(json.dumps(content, indent=1))
    else:
        _print(findings, worlds)
        if absent:
            print(f"missing system packages that campaigns need: {', '.join(absent)}")
            print(f"  {system_packages.how_to_install(absent)}")
    return EXIT_PASS if worlds["process"] else EXIT_UNKNOWN


def able(findings: Sequence[DoctorFinding]) -> dict[str, bool]:
    """By world: whether it can run campaigns here."""
    lacking = {finding.part for finding in findings if not finding.met}
    parts = {"namespaces": NAMESPACES, "vagrant": VIRTUAL_MACHINES, "inventory": INVENTORY}
    can_run = EVERY_WORLD not in lacking
    return {"process": can_run, **{world: can_run and part not in lacking for world, part in parts.items()}}


def _print(findings: Sequence[DoctorFinding], worlds: Mapping[str, bool]) -> None:
    rows = [
        {
            "": "ok" if each.met else "MISSING",
            "for": each.part,
            "what": each.name,
            "found": each.detail,
            "remedy": each.remedy,
        }
        for each in findings
    ]
    show("doctor", rows, ("", "for", "what", "found", "remedy"))
    if not worlds["process"]:
        verdict_line("fail", "campaigns cannot run here; apply the remedies for every world")
        return
    if worlds["namespaces"]:
        verdict_line("pass", "campaigns run in the namespace world: kill, pause, power loss and partitions")
    else:
        verdict_line("unknown", "campaigns run in the process world only: kill and pause, no power loss, no partitions")
    _print_machines(findings, worlds)


def _print_machines(findings: Sequence[DoctorFinding], worlds: Mapping[str, bool]) -> None:
    """Print the worlds that only run when a user selects them."""
    absent = {
        part: ", ".join(finding.name for finding in findings if finding.part == part and not finding.met)
        for part in (VIRTUAL_MACHINES, INVENTORY)
    }
    if worlds["vagrant"]:
        verdict_line(
            "pass", "campaigns run on virtual machines (--world vagrant), with their own kernels, disks and clocks"
        )
    else:
        verdict_line(
            "unknown", f"virtual machines (--world vagrant) are not usable: {absent[VIRTUAL_MACHINES]} missing"
        )
    if worlds["inventory"]:
        verdict_line("pass", "campaigns run on hosts that this machine reaches by SSH (--inventory FILE)")
    else:
        verdict_line("unknown", f"other hosts (--inventory FILE) are not usable: {absent[INVENTORY]} missing")


def _python() -> list[DoctorFinding]:
    version = platform.python_version()
    met = sys.version_info >= (3, 11)
    findings = [DoctorFinding(EVERY_WORLD, "python", met, version, "" if met else "install Python 3.11 or later")]
    absent = [name for name in _LIBRARIES if not _installed(name)]
    detail = f"{len(_LIBRARIES) - len(absent)} of {len(_LIBRARIES)}" + (
        f", without {', '.join(absent)}" if absent else ""
    )
    remedy = _install_again() if absent else ""
    return [*findings, DoctorFinding(EVERY_WORLD, "libraries", not absent, detail, remedy)]


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _install_again() -> str:
    """How to install Brownout's Python dependencies again."""
    if is_installed():
        return "install brownout again, as it was installed (pip, pipx or uv); that also installs its dependencies"
    return f"remove .venv and run {command('doctor')} again"


def _spark() -> list[DoctorFinding]:
    """Spark is optional: without it runs are analyzed in process. If installed, it is the default and needs Java."""
    if absent := extras.missing(extras.SPARK):
        remedy = f"nothing, or: {extras.how_to_install(extras.SPARK)}"
        return [
            DoctorFinding(SPARK, "extra [spark]", False, f"without {', '.join(absent)}: analyzed in process", remedy)
        ]
    return [DoctorFinding(SPARK, "extra [spark]", True, f"pyspark {metadata.version('pyspark')}"), _java()]


def _extra_vms(part: str) -> DoctorFinding:
    absent = extras.missing(extras.VMS)
    detail = f"without {', '.join(absent)}" if absent else f"ansible-core {metadata.version('ansible-core')}"
    return DoctorFinding(part, "extra [vms]", not absent, detail, extras.how_to_install(extras.VMS) if absent else "")


def _java() -> DoctorFinding:
    from analysis.engines.spark import OLDEST_JAVA, java_version

    version = java_version()
    met = version is not None and version >= OLDEST_JAVA
    remedy = "" if met else f"apt-get install openjdk-{OLDEST_JAVA}-jre-headless (or any later one)"
    return DoctorFinding(EVERY_WORLD, "java", met, "none" if version is None else str(version), remedy)


def _disk() -> DoctorFinding:
    store = default_store()
    directory = store if store.exists() else store.parent
    free = shutil.disk_usage(directory).free
    met = free >= _FREE_BYTES and os.access(directory, os.W_OK)
    remedy = "" if met else f"free some space, or use another place: --store DIR (at least {_FREE_BYTES >> 30} GiB)"
    return DoctorFinding(EVERY_WORLD, "store", met, f"{free / (1 << 30):.1f} GiB free at {directory}", remedy)


def _open_files() -> DoctorFinding:
    from orchestrator.worlds.selection import open_files

    need = open_files()
    return DoctorFinding(EVERY_WORLD, need.name, need.met, need.detail, "" if need.met else need.remedy)


def _namespaces() -> list[DoctorFinding]:
    from orchestrator.worlds.namespaces import requirements

    return [
        DoctorFinding(NAMESPACES, need.name, need.met, need.detail, "" if need.met else need.remedy)
        for need in requirements.check()
    ]


def _virtual_machines() -> list[DoctorFinding]:
    import nodeimage
    from orchestrator.worlds.vagrant import requirements

    findings = [
        DoctorFinding(VIRTUAL_MACHINES, need.name, need.met, need.detail, "" if need.met else need.remedy)
        for need in requirements.check()
    ]
    try:
        image = nodeimage.find(PROJECT_ROOT)
        place, found = image.directory, DoctorFinding(VIRTUAL_MACHINES, "image", True, f"up to date: {image.key}")
    except nodeimage.ImageError as error:
        problem, remedy = str(error).splitlines()[0], command("image", "build")
        place, found = None, DoctorFinding(VIRTUAL_MACHINES, "image", False, problem, remedy)
    return [_extra_vms(VIRTUAL_MACHINES), *findings, _kvm(place), found]


def _kvm(image: Path | None) -> DoctorFinding:
    """Not required: without KVM, machines are emulated."""
    from orchestrator.worlds.vagrant import driver, requirements

    try:
        return DoctorFinding(VIRTUAL_MACHINES, "KVM", True, requirements.acceleration(image).detail)
    except UsageError as error:
        return DoctorFinding(VIRTUAL_MACHINES, "KVM", False, str(error), f"unset {driver.VARIABLE}")


def _inventory() -> list[DoctorFinding]:
    from orchestrator.machine.programs import find_program

    ssh = find_program("ssh")
    return [
        _extra_vms(INVENTORY),
        DoctorFinding(
            INVENTORY, "ssh", ssh is not None, ssh or "not installed", "" if ssh else "install openssh-client"
        ),
    ]


def _clean() -> None:
    from orchestrator.nodes.leftovers import remove_leftovers

    removed = remove_leftovers(default_store())
    for path in removed:
        print(f"removed: {path}", file=sys.stderr)
    if not removed:
        print("nothing to clean: killed commands left nothing behind", file=sys.stderr)


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--clean", action="store_true", help="remove what killed runs left behind")
    json_option(command)


COMMAND: Final = Command(
    name="doctor",
    place=120,
    summary="what this machine can run, and what to install",
    description="""\
Checks what each world and option of Brownout needs from the machine, and how to install what is missing.
Exit 0: campaigns can run here, at least in the process world. Exit 2: they cannot.
""",
    options=_options,
    main=main,
)
