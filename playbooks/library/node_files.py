"""Writes files and links of a node in one round trip, and runs commands when something changed.

`files`: a list of `path` with `content` (and `mode`, "0644") or with `link` (the target of a symbolic link). Parent
directories are made. When a command of `on_change` fails, the files that were written are removed again, so that the
next run repeats both. `repeat` runs the commands although no file changed, because their effect was undone. Commands of
`on_replace` run before them if a path had another file before: systemd must reload a changed unit, but not a new one,
and reloading takes a second under emulation.
"""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

_FILE = {
    "path": {"type": "path", "required": True},
    "content": {"type": "str"},
    "mode": {"type": "str", "default": "0644"},
    "link": {"type": "str"},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "files": {"type": "list", "elements": "dict", "required": True, "options": _FILE},
            "on_change": {"type": "list", "elements": "str", "default": []},
            "on_replace": {"type": "list", "elements": "str", "default": []},
            "repeat": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    changed = [file for file in module.params["files"] if differs(file)]
    shown = [difference(file) for file in changed]
    paths = [file["path"] for file in changed]
    replaced = any(map(os.path.lexists, paths))
    due = bool(changed) or module.params["repeat"]
    if due and not module.check_mode:
        try:
            for file in changed:
                make(file)
        except OSError as error:
            module.fail_json(msg=f"{error.filename}: {error.strerror}")
        follow(module, [*(module.params["on_replace"] if replaced else []), *module.params["on_change"]], paths)
    module.exit_json(changed=due, written=paths, diff=shown)


def differs(file: dict[str, Any]) -> bool:
    """Whether the node's file differs from the wanted one."""
    path = file["path"]
    if file["link"] is not None:
        return not (os.path.islink(path) and os.readlink(path) == file["link"])
    return read(path) != file["content"] or os.stat(path).st_mode & 0o7777 != int(file["mode"], 8)


def make(file: dict[str, Any]) -> None:
    """Replace the file in one step: a power cut leaves the old one or the new one."""
    path = file["path"]
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    draft = f"{path}.new"
    if os.path.lexists(draft):
        os.unlink(draft)
    if file["link"] is not None:
        os.symlink(file["link"], draft)
    else:
        with open(draft, "w", encoding="utf-8") as text:
            text.write(file["content"])
            os.fchmod(text.fileno(), int(file["mode"], 8))
            text.flush()
            os.fsync(text.fileno())
    os.rename(draft, path)
    named = os.open(directory, os.O_RDONLY)
    os.fsync(named)
    os.close(named)


def follow(module: AnsibleModule, commands: list[str], paths: list[str]) -> None:
    """Run the commands that follow a change."""
    path = f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"
    for command in commands:
        code, said, complained = module.run_command(command, environ_update={"PATH": path})
        if code:
            for written in filter(os.path.lexists, paths):
                os.unlink(written)
            module.fail_json(msg=f"`{command}` failed with {code}", stdout=said, stderr=complained)


def read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as text:
            return text.read()
    except (OSError, UnicodeDecodeError):
        return None


def difference(file: dict[str, Any]) -> dict[str, str]:
    """The change in the form of `ansible-playbook --diff`."""
    return {
        "before_header": file["path"],
        "after_header": file["path"],
        "before": read(file["path"]) or "",
        "after": file["content"] or file["link"] or "",
    }


if __name__ == "__main__":
    main()
