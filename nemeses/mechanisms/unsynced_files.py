"""Checks that a power cut lost unsynced data: the tails of files that a scenario needs to lose.

The kernel may write unsynced data back at any time: after a sync of the whole machine, when memory is short, or after
30 s. Therefore a scenario that needs a loss names the files, and their content just before the cut is compared with the
content after it. A disk that kept everything proves nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from nemeses.fault import Evidence
from nemeses.mechanisms.shell import ask, question
from nemeses.ports import Host, HostError

_DIGEST = 'digest() { echo "$1=$2 $(head -c "$2" "$1" 2>/dev/null | sha256sum | cut -c1-64)"; }'
_DEADLINE_S = 60.0


@question
def digest_files_script(directory: str, pattern: str) -> str:
    """For each non-empty regular file of a directory that matches the pattern: its path below it, its size, and the
    SHA-256 digest of its content; and `noted`."""
    digest = '[ -f "$file" ] && [ ! -L "$file" ] && [ -s "$file" ] && digest "$file" "$(($(wc -c < "$file")))"'
    return f"{_DIGEST}\ncd {shlex.quote(directory)} || exit\nfor file in {pattern}; do\n{digest}\ndone\necho noted=yes"


@question
def digest_heads_script(directory: str, sizes: Mapping[str, int]) -> str:
    """The same for the first bytes of each of these files, as many as given, if it exists."""
    lines = [f"digest {shlex.quote(path)} {size}" for path, size in sizes.items()]
    return "\n".join([_DIGEST, f"cd {shlex.quote(directory)} || exit", *lines])


class AtStake:
    """The files at stake on every host, from just before the cut until the power is back."""

    def __init__(self) -> None:
        self._before: dict[str, dict[str, tuple[int, str]]] = {}

    def note(self, host: Host, pattern: str) -> None:
        """Record the content of the files that match this pattern. Raises `HostError`, also when all are empty."""
        held = _digests(ask(host, digest_files_script(host.data_dir, pattern), timeout_s=_DEADLINE_S))
        if not held:
            raise HostError(f"{host.name}: no data is at stake: no file in {host.data_dir} matches {pattern}")
        self._before[host.name] = held

    def look_after_cut(self, host: Host) -> Evidence:
        """Whether the last cut lost a part of it; confirmed if no data was at stake. Raises `HostError`."""
        before = self._before.pop(host.name, None)
        if before is None:
            return Evidence("confirmed", {})
        sizes = {path: size for path, (size, _) in before.items()}
        after = _digests(ask(host, digest_heads_script(host.data_dir, sizes), timeout_s=_DEADLINE_S))
        if any(after.get(path) != held for path, held in before.items()):
            return Evidence("confirmed", {"at_stake": "lost"})
        return Evidence("mismatch", {"at_stake": "kept", "kept": sorted(before)})


def _digests(answer: Mapping[str, str]) -> dict[str, tuple[int, str]]:
    """By path: the number of bytes, and their digest."""
    parted = {path: value.split() for path, value in answer.items()}
    return {path: (int(words[0]), words[1]) for path, words in parted.items() if len(words) == 2}
