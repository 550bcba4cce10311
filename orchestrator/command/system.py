"""`brownout system`: lists systems under test, fetches their files, writes lock files."""

import argparse
import json
import shlex
from pathlib import Path
from typing import Any, Final

from installation.counted import counted
from installation.files import PROJECT_ROOT
from orchestrator.command.shared.declaration import Command, actions_of, add
from orchestrator.command.shared.options import json_option
from orchestrator.errors import EXIT_PASS
from orchestrator.machine import packages as system_packages
from orchestrator.printing import show
from orchestrator.running.progress import Progress
from systems import catalog, lock_file, maven
from systems.files import CACHE, FileCache
from systems.lock_file import Coordinate, Lock

SYSTEMS = catalog.SYSTEMS


def main(options: argparse.Namespace) -> int:
    """Run the action; returns the exit code. Raises `InputError`."""
    if options.action == "list":
        return _list(as_json=options.json)
    if options.action == "show":
        return _show(options.name, options.version, as_json=options.json)
    if options.action == "fetch":
        return _fetch(options.name, options.version, as_json=options.json)
    return _lock(options)


def _list(*, as_json: bool) -> int:
    cache = FileCache(CACHE)
    systems = catalog.all_systems(SYSTEMS)
    fetched = {system.name: [v for v in system.versions if cache.is_fetched(system.lock(v))] for system in systems}
    if as_json:
        content = [
            {
                "name": system.name,
                "directory": str(system.directory),
                "versions": [{"version": v, "fetched": v in fetched[system.name]} for v in system.versions],
            }
            for system in systems
        ]
        print(json.dumps(content, indent=1))
        return EXIT_PASS
    rows = [{"system": system.name, "versions": system.versions, "fetched": fetched[system.name]} for system in systems]
    show("systems", rows, ("system", "versions", "fetched"))
    return EXIT_PASS


def _show(name: str, version: str | None, *, as_json: bool) -> int:
    system = catalog.find_system(name, SYSTEMS)
    if version is not None:
        return _show_version(system.lock(version), as_json=as_json)
    cache = FileCache(CACHE)
    versions: list[dict[str, Any]] = [
        {
            "version": lock.version,
            "files": len(lock.files),
            "bytes": lock.size,
            "fetched": cache.is_fetched(lock),
            "directory": str(cache.directory(lock)),
        }
        for lock in map(system.lock, system.versions)
    ]
    if as_json:
        content = {"name": system.name, "directory": str(system.directory), "versions": versions}
        print(json.dumps(content, indent=1))
        return EXIT_PASS
    print(f"{system.name}, described in {_shown(system.directory)}")
    if not versions:
        print("  it has no files to fetch")
    for each in versions:
        state = _shown(Path(each["directory"])) if each["fetched"] else "not fetched"
        print(f"  {each['version']:10} files: {each['files']:3}, {each['bytes'] / 1e6:5.1f} MB   {state}")
    return EXIT_PASS


def _show_version(lock: Lock, *, as_json: bool) -> int:
    cache = FileCache(CACHE)
    content: dict[str, Any] = {
        "name": lock.system,
        "version": lock.version,
        "fetched": cache.is_fetched(lock),
        "directory": str(cache.directory(lock)),
        "by_hand": str(cache.by_hand(lock)),
        "files": [
            {"file": file.name, "coordinate": str(file.coordinate), "sha256": file.sha256, "bytes": file.size}
            for file in lock.files
        ],
    }
    if as_json:
        print(json.dumps(content, indent=1))
        return EXIT_PASS
    show(f"{lock.system} {lock.version}", content["files"], ("file", "bytes", "coordinate", "sha256"))
    if content["fetched"]:
        print(f"fetched: {_shown(cache.directory(lock))}")
    else:
        print(f"not fetched; run: brownout system fetch {lock.system} {lock.version}")
        print(f"without a network, put the files into {_shown(cache.by_hand(lock))} first")
    return EXIT_PASS


def _fetch(name: str, version: str, *, as_json: bool) -> int:
    lock = catalog.find_system(name, SYSTEMS).lock(version)
    cache = FileCache(CACHE)
    was_there = cache.is_fetched(lock)
    with Progress() as progress:
        progress.run(f"{name} {version}")
        directory = cache.fetch(lock, progress.phase, _get_maven)
    if as_json:
        content = {"name": name, "version": version, "directory": str(directory), "was_there": was_there}
        print(json.dumps(content, indent=1))
        return EXIT_PASS
    before = "was fetched before" if was_there else "is fetched"
    print(
        f"{name} {version} {before}: {_shown(directory)}, {counted(len(lock.files), 'file')}, {lock.size / 1e6:.1f} MB"
    )
    return EXIT_PASS


def _lock(options: argparse.Namespace) -> int:
    path = catalog.new_lock_path(options.name, options.version, SYSTEMS)
    coordinates = [Coordinate.parse(text) for text in options.coordinate]
    _get_maven()
    with Progress() as progress:
        progress.run(f"{options.name} {options.version}")
        progress.phase("resolving with Maven")
        files = maven.resolve(coordinates, options.without, progress.phase)
    left_out = [word for pattern in options.without for word in ("--without", pattern)]
    command = shlex.join(
        ["brownout", "system", "lock", options.name, options.version, *map(str, coordinates), *left_out]
    )
    lock_file.write(path, files, f"Made by: {command}")
    print(f"{_shown(path)}: {counted(len(files), 'file')}, {sum(file.size for file in files) / 1e6:.1f} MB")
    return EXIT_PASS


def _get_maven() -> None:
    system_packages.ensure(maven.PROGRAMS, "fetching jars")


def _shown(path: Path) -> str:
    return str(path.relative_to(PROJECT_ROOT)) if path.is_relative_to(PROJECT_ROOT) else str(path)


def _options(command: argparse.ArgumentParser) -> None:
    actions = actions_of(command)
    listing = add(actions, "list", "list all systems", "Lists systems, their versions, and which versions are fetched.")
    json_option(listing)
    show = add(actions, "show", "show one system", "Shows a system's versions, or the files of one version.")
    show.add_argument("name", metavar="NAME", help="such as apache-kafka")
    show.add_argument("version", nargs="?", metavar="VERSION", help="such as 4.1.1: show the files of this version")
    json_option(show)
    fetch = add(
        actions,
        "fetch",
        "download the files of a version",
        "Downloads the files of a version with Maven, checks their digests, and stores them in .cache/systems/. Files\n"
        "that exist are not downloaded again. An interrupted fetch leaves no partial files.",
    )
    fetch.add_argument("name", metavar="NAME", help="such as apache-kafka")
    fetch.add_argument("version", metavar="VERSION", help="such as 4.1.1")
    json_option(fetch)
    lock = add(
        actions,
        "lock",
        "write the lock file of a version",
        "Resolves jars and their runtime dependencies with Maven, and writes their digests into the version's lock\n"
        "file: for a new version, or a new system on the JVM. Review the file and commit it.\n\n"
        "  brownout system lock apache-kafka 4.1.1 org.apache.kafka:kafka_2.13:4.1.1 --without scala-reflect",
    )
    lock.add_argument("name", metavar="NAME", help="such as apache-kafka; its directory is created if missing")
    lock.add_argument("version", metavar="VERSION", help="such as 4.1.1")
    lock.add_argument("coordinate", nargs="+", metavar="COORDINATE", help="group:artifact:version[:classifier]")
    lock.add_argument(
        "--without", action="append", default=[], metavar="ARTIFACT", help="exclude it; may contain * (repeatable)"
    )


COMMAND: Final = Command(
    name="system",
    place=90,
    summary="list systems under test, fetch their files",
    description="""\
Lists the systems that campaigns can test, and fetches the files of systems that Brownout does not contain.
A version's lock file, systems/<system>/versions/<version>.lock, has its files with their digests. Only files
with these digests are used.

  brownout system list                           all systems, their versions, which are fetched
  brownout system show apache-kafka 4.1.1        the files of one version
  brownout system fetch apache-kafka 4.1.1       download them with Maven, once

Without a network, `fetch` prints which files it needs and the directory for them.
""",
    options=_options,
    main=main,
)
