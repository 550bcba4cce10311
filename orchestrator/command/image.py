"""`brownout image`: builds, shows and removes the image that nodes boot."""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import nodeimage
from installation.counted import counted
from installation.files import PROJECT_ROOT
from orchestrator.command.shared.declaration import Command, actions_of, add
from orchestrator.command.shared.options import json_option
from orchestrator.errors import EXIT_PASS, EXIT_UNKNOWN, RunError, UsageError
from orchestrator.machine import packages as system_packages
from orchestrator.running.progress import Progress
from orchestrator.worlds.selection import require_machines
from systems.toml_tables import suggestion

PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "qemu-img": "qemu-utils",
    "mke2fs": "e2fsprogs",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
}


def main(options: argparse.Namespace) -> int:
    """Run the action; returns the exit code. Raises `RunError`, and `UsageError` if packages are missing."""
    try:
        if options.action == "build":
            return _build(options.options, force=options.force)
        if options.action == "remove":
            return _remove()
        return _show(as_json=options.json)
    except nodeimage.ImageError as error:
        raise RunError(str(error)) from error


def _build(options: Sequence[str], *, force: bool) -> int:
    nodeimage.check_machine()
    unknown = sorted(set(options) - set(nodeimage.OPTIONS))
    if unknown:
        raise UsageError(f"--with {unknown[0]}: {suggestion(unknown[0], nodeimage.OPTIONS)}")
    require_machines("building the nodes' image")
    began = time.monotonic()
    with Progress() as progress:
        progress.run("the nodes' image")
        if system_packages.missing(PROGRAMS):
            progress.phase("installing the packages for the build")
            system_packages.ensure(PROGRAMS, "building the nodes' image")
        image = nodeimage.build(PROJECT_ROOT, progress.phase, options=options, force=force)
    record = image.record
    if record["built_at_ns"] < time.time_ns() - int((time.monotonic() - began) * 1e9):
        print(f"up to date since {record['built_at']}: {_shown(image.directory)}")
    else:
        print(f"built in {time.monotonic() - began:.0f} s: {_shown(image.directory)}")
    packages = counted(len(record["packages"]), "package")
    print(f"  disk {_megabytes(record, 'node.qcow2')}, kernel {record['kernel']}, {packages}")
    print(f"  by hand: vagrant box add --name brownout/node {_shown(image.box)}")
    return EXIT_PASS


def _show(*, as_json: bool) -> int:
    state, image, reason = _state()
    fresh = nodeimage.current(PROJECT_ROOT)
    stale = [path for path in nodeimage.built(PROJECT_ROOT) if path not in fresh]
    if as_json:
        content: dict[str, Any] = {"state": state, "wanted_key": nodeimage.wanted_key(PROJECT_ROOT)}
        if image is not None:
            parts = {name: str(getattr(image, name)) for name in _PARTS}
            content["image"] = {**image.record, **parts}
        content["stale"] = [str(path) for path in stale]
        print(json.dumps(content, indent=1))
        return EXIT_PASS if image is not None else EXIT_UNKNOWN
    if image is None:
        print(reason)
    else:
        record = image.record
        print(
            f"up to date, built at {record['built_at']} in {record['build_seconds']:g} s from Debian {record['suite']}"
        )
        packages = counted(len(record["packages"]), "package")
        print(f"kernel {record['kernel']}, {packages}, broker's packages {record['site_key']}")
        if record.get("options"):
            print(f"with {', '.join(record['options'])}")
        for name in _PARTS:
            path: Path = getattr(image, name)
            print(f"  {name:8} {_shown(path)}")
    for path in fresh:
        if image is None or path != image.directory:
            print(f"  as well  {_shown(path)}")
    for path in stale:
        print(f"  stale    {_shown(path)}")
    return EXIT_PASS if image is not None else EXIT_UNKNOWN


_PARTS = ("disk", "kernel", "initrd", "box", "rootfs", "site")


def _state() -> tuple[str, nodeimage.Image | None, str]:
    try:
        return "current", nodeimage.find(PROJECT_ROOT), ""
    except nodeimage.ImageStaleError as error:
        return "stale", None, str(error)
    except nodeimage.ImageMissingError as error:
        return "missing", None, str(error)


def _remove() -> int:
    count = nodeimage.remove_all(PROJECT_ROOT)
    print(f"removed {count} image{'' if count == 1 else 's'}" if count else "no image was found")
    return EXIT_PASS


def _shown(path: Path) -> str:
    return str(path.relative_to(PROJECT_ROOT) if path.is_relative_to(PROJECT_ROOT) else path)


def _megabytes(record: dict[str, Any], name: str) -> str:
    return f"{record['bytes'][name] / 1e6:.0f} MB"


def _options(command: argparse.ArgumentParser) -> None:
    actions = actions_of(command)
    build = add(actions, "build", "build the image unless it is up to date", "Builds the image; takes two minutes.")
    build.add_argument(
        "--with",
        dest="options",
        action="append",
        default=[],
        metavar="WHAT",
        help="include this software: java, for systems on the JVM (repeatable)",
    )
    build.add_argument("--force", action="store_true", help="rebuild an image that is up to date")
    show = add(actions, "show", "show the image and its state", "Shows the image that campaigns would use.")
    json_option(show)
    add(actions, "remove", "remove all images", "Removes all images that were built.")


COMMAND: Final = Command(
    name="image",
    place=110,
    summary="build the image that nodes boot",
    description="""\
Builds the nodes' image from Debian packages: a Vagrant box for libvirt, and the same root filesystem for
the namespaces world. The image's key is a digest of its inputs; an image that is up to date is not rebuilt.
""",
    options=_options,
    main=main,
)
