"""The groups of a shard by name; the memory of each is counted."""

from collections.abc import Iterator

from broker.groups.group import Group
from broker.groups.memory_quota import Holdings, MemoryKind
from broker.groups.offsets import Offsets


class Groups:
    """A group is contained from the first request that changes it until it is removed from the log. A group without
    records in the log is removed when its last member or invitation is gone."""

    def __init__(self, holdings: Holdings, offsets: Offsets) -> None:
        self._holdings = holdings
        self._offsets = offsets
        self._groups: dict[str, Group] = {}

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def __contains__(self, name: str) -> bool:
        return name in self._groups

    def get(self, name: str) -> Group | None:
        return self._groups.get(name)

    def keep(self, group: Group) -> None:
        """Add this group under its name, replacing another one."""
        old_group = self._groups.get(group.id)
        if old_group is group:
            return
        if old_group is not None:
            old_group.let_go()
        self._groups[group.id] = group
        group.keep(self._holdings)

    def remove(self, name: str) -> None:
        """Remove the group of this name, if there is one."""
        group = self._groups.pop(name, None)
        if group is not None:
            group.let_go()

    def remove_if_idle(self, group: Group) -> bool:
        """Remove a group without members, invitations and pending or existing records. Returns whether it was
        removed."""
        idle = (
            not group.members
            and not group.invited
            and group.kind is not MemoryKind.MEMBERS
            and not self._offsets.of(group.id)
            and not self._offsets.will_change(group.id)
        )
        if idle and self._groups.get(group.id) is group:
            self.remove(group.id)
        return idle
