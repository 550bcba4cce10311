"""Copies directories to a node as archives: only those that the node does not have yet, recognized by a content key.

`trees`: a list of `archive` (a tar archive on this machine, compressed or not), `key` (of its content) and `to` (the
directory on the node; the key is kept beside it as `<to>.key`).
"""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    TRANSFERS_FILES = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        trees = self._task.args["trees"]
        for tree in trees:
            if not os.path.isfile(tree["archive"]):
                raise AnsibleActionFail(f"the archive {tree['archive']!r} for {tree['to']} does not exist")
        wanted = [{"to": tree["to"], "key": tree["key"]} for tree in trees]
        seen = self._run_there(wanted, task_vars)
        if seen.get("failed") or not seen["missing"] or self._task.check_mode:
            return seen
        if self._connection._shell.tmpdir is None:
            self._make_tmp_path()
        for tree, here in zip(wanted, trees, strict=True):
            if tree["to"] in seen["missing"]:
                name = f"{os.path.basename(tree['to'])}.tar"
                tree["archive"] = self._connection._shell.join_path(self._connection._shell.tmpdir, name)
                self._transfer_file(here["archive"], tree["archive"])
        done = self._run_there(wanted, task_vars)
        self._remove_tmp_path(self._connection._shell.tmpdir)
        return done

    def _run_there(self, trees: list[dict[str, str]], task_vars: Any) -> dict[str, Any]:
        done: dict[str, Any] = self._execute_module(
            module_name="archive_tree", module_args={"trees": trees}, task_vars=task_vars
        )
        return done
