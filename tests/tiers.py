"""Test tiers: which of the collected tests `./brownout test` runs, and which wait for `./brownout test --all`.

Theory of operation. The tier `all` runs every collected test. The tier `quick` leaves out

- tests marked `thorough`;
- of the tests of one function marked `rotating(N)` all but every Nth. The number of commits decides where the count
  starts, so that each of them runs on one commit in N;
- of the tests marked `rotating(N, among="name")` all but every Nth in the same way, whatever functions they are of;
- of the tests of one function that differ only in the parameter `seed` all but one, which rotates in the same way.

A group that has fewer tests than its share keeps one of them, so that the quick tier has a test of every group.

The tier `rest` is what `quick` leaves out.

A rotating test is in `quick` all the same when its mark names a file that differs from the merge base (`files=[...]`):
a developer sees the effect of a change at once. The choice depends only on the tree and its commit, so that all workers
of pytest-xdist choose the same tests.
"""

import subprocess
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

QUICK: Final = "quick"
ALL: Final = "all"
REST: Final = "rest"


@dataclass(frozen=True)
class Selection:
    """The part of the rotating tests that the quick tier runs.

    `rotation`: a number that changes with the commit; `changed`: paths, relative to the project's root, of files that
    differ from the merge base.
    """

    rotation: int
    changed: frozenset[str]

    def choose(self, items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
        """The items to run and the items to leave out, both in the given order."""
        kept = {item.nodeid for group in _groups(items) for item in self._kept_of(group)}
        chosen = [item for item in items if item.nodeid in kept]
        return chosen, [item for item in items if item.nodeid not in kept]

    def _kept_of(self, group: "_Group") -> Iterable[pytest.Item]:
        for index, item in enumerate(group.items):
            if (index + self.rotation) % group.share == 0 or self.changed & _files(item):
                yield item


@dataclass(frozen=True)
class _Group:
    """Tests that stand for each other. One in `share` is kept."""

    items: list[pytest.Item]
    share: int


def _groups(items: Sequence[pytest.Item]) -> list[_Group]:
    grouped: dict[Hashable, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("thorough") is None:
            grouped[_key(item)].append(item)
    return [_Group(group, _share(group)) for group in grouped.values()]


def _key(item: pytest.Item) -> Hashable:
    """The same for tests of one group: the name that their marks give, or their function. A test that stands for itself
    is a group of its own."""
    function = item.nodeid.partition("[")[0]
    if item.get_closest_marker("rotating") is not None:
        names = (mark.kwargs["among"] for mark in item.iter_markers("rotating") if "among" in mark.kwargs)
        return next(names, function)
    parameters = _parameters(item)
    if "seed" not in parameters:
        return item.nodeid
    return function, tuple((name, str(value)) for name, value in sorted(parameters.items()) if name != "seed")


def _parameters(item: pytest.Item) -> Mapping[str, object]:
    callspec = getattr(item, "callspec", None)  # only parametrized tests have one
    return callspec.params if callspec is not None else {}


def _share(group: Sequence[pytest.Item]) -> int:
    """One in how many is kept: the number in the mark, but at least one of the group; of seeds one."""
    shares = (int(each.args[0]) for each in group[0].iter_markers("rotating") if each.args)
    return min(next(shares, len(group)), len(group))


def _files(item: pytest.Item) -> set[str]:
    return {file for mark in item.iter_markers("rotating") for file in mark.kwargs.get("files", ())}


def selection_of(root: Path) -> Selection:
    """The selection for a checkout. Without git, as in a source archive, no file counts as changed."""
    head = _git(root, "rev-parse", "HEAD")
    if not head:
        return Selection(0, frozenset())
    base = _merge_base(root, head[0])
    changed = _git(root, "diff", "--name-only", base) + _git(root, "ls-files", "--others", "--exclude-standard")
    count = _git(root, "rev-list", "--count", "HEAD")
    return Selection(int(count[0]), frozenset(changed))


def _merge_base(root: Path, head: str) -> str:
    """The last commit that the branch shares with the main branch; on the main branch itself the commit before HEAD."""
    for main in ("origin/main", "main"):
        base = _git(root, "merge-base", "HEAD", main)
        if base and base[0] != head:
            return base[0]
    return next(iter(_git(root, "rev-parse", "--verify", "--quiet", "HEAD~1")), head)


def _git(root: Path, *arguments: str) -> list[str]:
    """The lines that git prints; none where git or the repository is missing."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []
