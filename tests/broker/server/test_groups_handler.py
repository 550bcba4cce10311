"""The share of consumer groups in one request, for any repetition of their names."""

from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from broker.errors import ErrorCode
from broker.protocol.messages.group_apis import DescribedGroup, DescribeGroupsRequest
from broker.protocol.messages.offset_apis import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from broker.protocol.schema import Topic
from broker.server.handlers.groups_handler import GroupsHandler
from broker.server.work_budget import Work

A = TypeVar("A")


class Turns:
    """A turn without end."""

    def spend(self, _entries: int) -> None:
        pass


class Shard:
    """A coordinator of groups with large descriptions."""

    def shard_of(self, _name: str) -> "Shard":
        return self

    def describe(self, name: str, _version: int) -> DescribedGroup:
        return DescribedGroup(group_id=name, protocol_data="much")

    def fetch(self, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        return OffsetFetchResponseGroup(asked.group_id, [Topic("much")])


@pytest.fixture
def handler() -> GroupsHandler:
    dispatcher: Any = SimpleNamespace(turns=Turns())
    groups: Any = Shard()
    return GroupsHandler(dispatcher, groups, "PLAINTEXT")


def answer(work: Work[A]) -> A:
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: A = done.value
            return found


def test_a_group_is_described_once(handler: GroupsHandler) -> None:
    response = answer(handler.describe(DescribeGroupsRequest(["a", "b"] + ["a"] * 1000), 5))
    assert [(it.group_id, it.protocol_data) for it in response.groups] == [("a", "much"), ("b", "much")]


def test_offsets_are_fetched_of_groups_that_are_named_once(handler: GroupsHandler) -> None:
    def fetched(*names: str) -> list[tuple[str, int, int]]:
        response = answer(
            handler.fetch(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name) for name in names]), 8)
        )
        return [(it.group_id, it.error_code, len(it.topics)) for it in response.groups]

    assert fetched("a", "b") == [("a", 0, 1), ("b", 0, 1)]
    assert fetched("a", "b", "a") == [(name, ErrorCode.INVALID_REQUEST, 0) for name in "aba"]
