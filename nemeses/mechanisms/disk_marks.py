"""Marks on a host's disk, which show what survived a power loss: one mark that was synced, and one that was not.

The synced mark is written when no other data is at risk: after the start of the services, and after a boot. The other
one is written just before a cut, without a sync, because a sync would also save the service's unsynced data.
"""

from __future__ import annotations

import shlex
from typing import Any

from nemeses.fault import Evidence, Status, worst
from nemeses.mechanisms.shell import ask, question
from nemeses.ports import Host, HostError, Site

# A filesystem may be mounted shortly after the host answers.
_MOUNTED_S = 5


@question
def renew_mark_script(directory: str, mark: str) -> str:
    """Write and sync this mark in a data directory, and remove the other mark; prints `synced`."""
    # New files instead of overwritten ones: some filesystems write a truncated file back early.
    return (
        f"{_marks(directory)}\n"
        'mkdir -p "$marks" && rm -f "$marks/synced" "$marks/unsynced" && '
        f'printf %s {mark} > "$marks/synced" && sync "$marks/synced" "$marks" "$data" && echo synced=yes'
    )


@question
def leave_mark_script(directory: str, mark: str) -> str:
    """Write this mark without a sync; prints `written`."""
    return f'{_marks(directory)}\nrm -f "$marks/unsynced"; printf %s {mark} > "$marks/unsynced" && echo written=yes'


@question
def read_marks_script(directory: str, looks: int) -> str:
    """Prints the content of both marks, `synced` and `unsynced`: empty without a mark. Looks for the synced one ten
    times a second, until it exists."""
    return f"""{_marks(directory)}
for i in {" ".join("." * looks)}; do [ -e "$marks/synced" ] && break; sleep 0.1; done
content() {{ tr -cd 0-9a-f < "$marks/$1" 2>/dev/null | head -c 64; }}
echo "synced=$(content synced)"; echo "unsynced=$(content unsynced)\""""


def _marks(directory: str) -> str:
    return f'data={shlex.quote(directory)}; marks="$data/.brownout"'


class Marks:
    """The marks of all hosts. A host has no mark until `renew`."""

    def __init__(self, site: Site) -> None:
        self._looks = 10 * round(_MOUNTED_S * site.time_scale)
        self._new_mark = site.new_mark
        self._synced: dict[str, str] = {}
        self._unsynced: dict[str, str] = {}

    def renew(self, host: Host) -> Evidence:
        """Write a new synced mark, which must survive the next cut, and remove the other. Raises `HostError`."""
        mark = self._new_mark()
        ask(host, renew_mark_script(host.data_dir, mark))
        self._synced[host.name] = mark
        self._unsynced.pop(host.name, None)
        return Evidence("confirmed", {"synced_mark": mark})

    def leave_unsynced(self, host: Host) -> None:
        """Write the mark that a cut should destroy; does nothing on a host without marks. Raises `HostError`."""
        if host.name not in self._synced:
            return
        mark = self._new_mark()
        ask(host, leave_mark_script(host.data_dir, mark))
        self._unsynced[host.name] = mark

    def look_after_cut(self, host: Host) -> Evidence:
        """The marks that survived the last cut; then writes the marks for the next one. Empty without a cut since the
        last call.

        Raises `HostError`."""
        unsynced = self._unsynced.get(host.name)
        if unsynced is None:
            return Evidence("confirmed", {})
        seen = ask(host, read_marks_script(host.data_dir, self._looks), timeout_s=self._looks / 10 + 10)
        kept = seen.get("synced") == self._synced[host.name]
        detail: dict[str, Any] = {
            "synced_mark": "kept" if kept else "LOST",
            "unsynced_mark": "kept" if seen.get("unsynced") == unsynced else "lost",
        }
        status: Status = "confirmed" if kept else "mismatch"
        try:
            self.renew(host)
        except HostError as error:
            # A host without marks proves nothing at the next cut; that must not hide the evidence of this one.
            self._synced.pop(host.name)
            self._unsynced.pop(host.name)
            return Evidence(worst([status, "inconclusive"]), {**detail, "marks": str(error)})
        return Evidence(status, detail)
