"""Unpacks archives into directories, each known by its content key: the part that runs on the node.

`trees`: a list of `to` (the directory), `key`, and `archive`, the archive's path on the node after the action plugin of
the same name has sent it. Called without archives, it returns the trees that are needed (`missing`).
"""

from __future__ import annotations

import os
import shutil
from typing import Any

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    tree = {
        "to": {"type": "path", "required": True},
        "key": {"type": "str", "required": True, "no_log": False},
        "archive": {"type": "path"},
    }
    module = AnsibleModule(
        argument_spec={"trees": {"type": "list", "elements": "dict", "required": True, "options": tree}},
        supports_check_mode=True,
    )
    missing = [tree for tree in module.params["trees"] if key_of(tree["to"]) != tree["key"]]
    ready = [tree for tree in missing if tree["archive"]]
    if not module.check_mode:
        for tree in ready:
            unpack(module, tree)
    module.exit_json(
        changed=bool(ready) or (module.check_mode and bool(missing)), missing=[tree["to"] for tree in missing]
    )


def unpack(module: AnsibleModule, tree: dict[str, Any]) -> None:
    """Unpack beside the old tree, then replace it. The key is written last, so that an interrupted run is repeated."""
    target = tree["to"]
    draft, old = f"{target}.new", f"{target}.old"
    for path in (draft, old):
        shutil.rmtree(path, ignore_errors=True)
    os.makedirs(draft)
    module.run_command(
        ["tar", "--extract", "--no-same-owner", "--file", tree["archive"], "--directory", draft],
        check_rc=True,
    )
    if os.path.lexists(f"{target}.key"):
        os.unlink(f"{target}.key")
    if os.path.isdir(target):
        os.rename(target, old)
    os.rename(draft, target)
    shutil.rmtree(old, ignore_errors=True)
    # The tree must be on the disk before its key is.
    module.run_command(["sync", "--file-system", target], check_rc=True)
    with open(f"{target}.key", "w", encoding="utf-8") as key:
        key.write(f"{tree['key']}\n")


def key_of(target: str) -> str | None:
    try:
        with open(f"{target}.key", encoding="utf-8") as key:
            return key.read().strip()
    except OSError:
        return None


if __name__ == "__main__":
    main()
