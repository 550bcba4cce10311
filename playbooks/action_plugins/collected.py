"""Collects files of a node: packs them on the node, fetches one archive, and unpacks it into a directory.

`to`: the directory on this machine; `trees` and `outputs` as in the module of the same name. Each tree gets its name
when it is complete: the analysis would take half a replica for one that lost the other half.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        if self._task.check_mode:
            return {**result, "skipped": True, "msg": "collecting changes nothing on the node"}
        arguments = dict(self._task.args)
        target = arguments.pop("to")
        if self._connection._shell.tmpdir is None:
            self._make_tmp_path()
        arguments["archive"] = self._connection._shell.join_path(self._connection._shell.tmpdir, "collected.tar.gz")
        packed: dict[str, Any] = self._execute_module(
            module_name="collected", module_args=arguments, task_vars=task_vars
        )
        if not packed.get("failed"):
            try:
                self._bring(arguments["archive"], target)
            except OSError as error:
                raise AnsibleActionFail(f"{target} cannot be written: {error}") from error
        self._remove_tmp_path(self._connection._shell.tmpdir)
        return packed

    def _bring(self, archive: str, target: str) -> None:
        os.makedirs(target, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".collecting-", dir=target) as draft:
            local = os.path.join(draft, "archive")
            self._connection.fetch_file(archive, local)
            unpacked = os.path.join(draft, "unpacked")
            with tarfile.open(local) as content:
                # Nodes are not fully trusted: use the safe filter where Python has it (3.11.4 and later).
                content.extraction_filter = getattr(tarfile, "data_filter", None)
                content.extractall(unpacked)
            for name in sorted(os.listdir(unpacked)):
                old = os.path.join(target, name)
                if os.path.isdir(old):
                    shutil.rmtree(old)
                os.replace(os.path.join(unpacked, name), old)
