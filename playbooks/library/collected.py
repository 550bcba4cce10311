"""Packs what is to be collected of a node into one archive: the part that runs on the node.

`trees`: a list of `source` (a directory), `name` (what it is called in the archive) and `patterns` (which files below
it, as globs); the directories that such files would lie in come too, with files or without. `outputs`: what commands
print, by the name of the file that it becomes.
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
        if path.is_dir() and not path.is_symlink():
            add_directory(archive, f"{name}/{visible(path.relative_to(source))}")
    for path in matching(source, set(patterns)):
        if path.is_file() and not path.is_symlink():
            add(archive, f"{name}/{visible(path.relative_to(source))}", read(path))


def visible(path: Path) -> str:
    """Without hidden names: what uploads artifacts leaves hidden files out."""
    return "/".join(f"dot{part}" if part.startswith(".") else part for part in path.parts)


def matching(source: str, patterns: set[str]) -> list[Path]:
    """What is below a directory and like one of the patterns, which mean what they do where no playbook collects."""
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
    """What the node cannot tell (no such program, not allowed) is left out."""
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
    """A file as it is at this moment; None when a running broker has just removed it."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    main()
