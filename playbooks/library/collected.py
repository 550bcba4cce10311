"""Packs the files that are collected from a node into one archive: the part that runs on the node.

`trees`: a list of `source` (a directory), `name` (in the archive) and `patterns` (globs of files below it). The
directories that such files would be in are packed, too, with or without files. `outputs`: commands by file name; the
output of each command becomes a file of that name.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    tree = {
        "source": {"type": "path", "required": True},
        "name": {"type": "str", "required": True},
        "patterns": {"type": "list", "elements": "str", "required": True},
    }
    module = AnsibleModule(
        argument_spec={
            "trees": {"type": "list", "elements": "dict", "options": tree, "default": []},
            "outputs": {"type": "dict", "default": {}},
            "archive": {"type": "path", "required": True},
        },
        supports_check_mode=False,
    )
    try:
        with tarfile.open(module.params["archive"], "w:gz", compresslevel=1) as archive:
            for tree in module.params["trees"]:
                add_tree(archive, tree["source"], tree["name"], tree["patterns"])
            for name, command in module.params["outputs"].items():
                add_output(archive, name, command)
    except OSError as error:
        module.fail_json(msg=f"the node's files cannot be read: {error}")
    module.exit_json(changed=False, archive=module.params["archive"])


def add_tree(archive: tarfile.TarFile, source: str, name: str, patterns: list[str]) -> None:
    add_directory(archive, name)
    for path in matching(source, {os.path.dirname(pattern) for pattern in patterns} - {""}):
        if path.is_dir() and not is_linked(path, source):
            add_directory(archive, f"{name}/{visible(path.relative_to(source))}")
    for path in matching(source, set(patterns)):
        if not is_linked(path, source) and path.is_file():
            add(archive, f"{name}/{visible(path.relative_to(source))}", read(path))


def is_linked(path: Path, source: str) -> bool:
    """Whether a path below `source` is a link, or leads through one."""
    parts = path.relative_to(source).parts
    return any(Path(source, *parts[:count]).is_symlink() for count in range(1, len(parts) + 1))


def visible(path: Path) -> str:
    """Replaces hidden names: programs that upload artifacts skip hidden files."""
    return "/".join(f"dot{part}" if part.startswith(".") else part for part in path.parts)


def matching(source: str, patterns: set[str]) -> list[Path]:
    """The paths below a directory that match a pattern; patterns mean the same as in the worlds without playbooks."""
    while True:
        try:
            return sorted({path for pattern in patterns for path in Path(source).glob(pattern)} - {Path(source)})
        except FileNotFoundError:  # a running broker has just removed a directory
            continue


def add_directory(archive: tarfile.TarFile, name: str) -> None:
    directory = tarfile.TarInfo(name)
    directory.type, directory.mode = tarfile.DIRTYPE, 0o755
    archive.addfile(directory)


def add_output(archive: tarfile.TarFile, name: str, command: list[str]) -> None:
    """Leaves out an output that the node cannot produce (missing program, missing permission)."""
    if shutil.which(command[0]) is None:
        return
    done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        add(archive, name, done.stdout)


def add(archive: tarfile.TarFile, name: str, content: bytes | None) -> None:
    if content is not None:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(content), 0o644
        archive.addfile(member, io.BytesIO(content))


def read(path: Path) -> bytes | None:
    """The current content of a file; None when a running broker has just removed it."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    main()
