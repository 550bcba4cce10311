"""What a power cut is to take: files of a host whose tails are in its memory only, which a scenario needs lost.

When a kernel writes back what nobody synced is its own affair: anybody's sync of the whole machine brings that about,
so does a shortage of memory, so do 30 s. A scenario that needs something lost therefore names the files, and what they
held just before the cut is compared with what they hold after it: a disk that kept all of it has shown nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from nemeses.fault import Evidence
from nemeses.mechanisms.shell import ask
from nemeses.ports import Host, HostError
from nemeses.probes import DigestFiles, DigestHeads, Script

_TELL = 'tell() { echo "$1=$2 $(head -c "$2" "$1" 2>/dev/null | sha256sum | cut -c1-64)"; }'
_DEADLINE_S = 60.0


class AtStake:
    """The files at stake on every host, from just before its power goes until it is back."""

    def __init__(self) -> None:
        self._before: dict[str, dict[str, tuple[int, str]]] = {}

    def note(self, host: Host, pattern: str) -> None:
        """Remember what the files of this pattern hold. Raises `HostError`, also when they hold nothing."""
        script = (
            f"{_TELL}\ncd {shlex.quote(host.data_dir)} || exit\nfor file in {pattern}; do\n"
            '[ -s "$file" ] && tell "$file" "$(($(wc -c < "$file")))"\ndone\necho noted=yes'
        )
        told = ask(host, Script(script, DigestFiles(host.data_dir, pattern)), timeout_s=_DEADLINE_S)
        held = _digests(told)
        if not held:
            raise HostError(f"{host.name}: nothing is at stake: no file in {host.data_dir} is like {pattern}")
        self._before[host.name] = held

    def look_after_cut(self, host: Host) -> Evidence:
        """Whether the last cut took some of it. Nothing where nothing was at stake. Raises `HostError`."""
        before = self._before.pop(host.name, None)
        if before is None:
            return Evidence("confirmed", {})
        heads = tuple((path, size) for path, (size, _) in before.items())
        lines = [f"tell {shlex.quote(path)} {size}" for path, size in heads]
        script = "\n".join([_TELL, f"cd {shlex.quote(host.data_dir)} || exit", *lines])
        after = _digests(ask(host, Script(script, DigestHeads(host.data_dir, heads)), timeout_s=_DEADLINE_S))
        if any(after.get(path) != held for path, held in before.items()):
            return Evidence("confirmed", {"at_stake": "lost"})
        return Evidence("mismatch", {"at_stake": "kept", "kept": sorted(before)})


def _digests(told: Mapping[str, str]) -> dict[str, tuple[int, str]]:
    """By path: how many bytes, and their digest."""
    parted = {path: value.split() for path, value in told.items()}
    return {path: (int(words[0]), words[1]) for path, words in parted.items() if len(words) == 2}
