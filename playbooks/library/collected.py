"""Packs what is to be collected of a node into one archive: the part that runs on the node.

`trees`: a list of `source` (a directory), `name` (what it is called in the archive) and `patterns` (which files below
it, as globs); the directories that such files would lie in come too, with files or without. `outputs`: what commands
print, by the name of the file that it becomes.
"""

from __future__ import annotations

import glob
import io
import os
import shutil
import subprocess
import tarfile

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
    for parent in sorted({os.path.dirname(pattern) for pattern in patterns} - {""}):
        for path in sorted(glob.glob(f"{glob.escape(source)}/{parent}")):
            if os.path.isdir(path) and not os.path.islink(path):
                add_directory(archive, f"{name}/{os.path.relpath(path, source)}")
    found = {path for pattern in patterns for path in glob.glob(f"{glob.escape(source)}/{pattern}")}
    for path in sorted(found):
        if os.path.isfile(path) and not os.path.islink(path):
            add(archive, f"{name}/{os.path.relpath(path, source)}", read(path))


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


def read(path: str) -> bytes | None:
    """A file as it is at this moment; None when a running broker has just removed it."""
    try:
        with open(path, "rb") as content:
            return content.read()
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    main()
