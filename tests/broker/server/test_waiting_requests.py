"""A request that waits for its answer does not keep the memory in which it arrived."""

import asyncio
import gc
import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest

from broker.errors import ErrorCode
from broker.protocol.api import ApiKey, encode_request
from broker.protocol.messages.group_apis import (
    JoinGroupRequest,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from broker.protocol.schema import Message
from broker.security.authorizer import Caller
from broker.server.dispatch import Dispatcher, Permit, RequestGuard
from broker.server.handlers.groups_handler import GroupsHandler

LARGE = 1 << 20


def frame_of(name: str) -> memoryview:
    """A request that says much which its group has no use for."""
    assignments = [SyncGroupRequestAssignment("m", bytes(LARGE))]
    requests: dict[str, tuple[Message, int]] = {
        "join": (JoinGroupRequest("g", reason="x" * LARGE), 9),
        "sync": (SyncGroupRequest("g", 1, "m", assignments=assignments), 5),
    }
    request, version = requests[name]
    return memoryview(encode_request(request, version, 1, "test"))[4:]


class Everybody:
    """Everybody may do everything."""

    def check(self, request: Message, _version: int, _caller: Caller) -> Permit:
        return Permit(request)


class Coordinator:
    """Never answers."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[Message]] = []

    def ask(self, _group: str, _call: object, _refuse: object) -> asyncio.Future[Message]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]


@pytest.mark.parametrize("guard", [None, Everybody()], ids=["without rules", "with rules"])
def test_a_waiting_request_frees_its_frame_and_itself(guard: RequestGuard | None) -> None:
    answers: list[Any] = []

    async def story() -> None:
        unused: Any = None
        groups: Any = Coordinator()
        dispatcher = Dispatcher(unused, print, guard=guard)
        handler = GroupsHandler(dispatcher, groups, "PLAINTEXT")
        dispatcher.serve(ApiKey.JOIN_GROUP, handler.join)
        dispatcher.answer_later(ApiKey.SYNC_GROUP, handler.sync)
        slot = SimpleNamespace(fill=answers.append)
        connection: Any = SimpleNamespace(
            peer="h:1",
            principal=None,
            address="h",
            reserve=lambda blocking: slot,  # noqa: ARG005
        )
        tracemalloc.start()
        try:
            for name in ("join", "sync"):
                dispatcher.dispatch(connection, frame_of(name))
                for _ in range(3):
                    await asyncio.sleep(0)
                gc.collect()
                assert tracemalloc.get_traced_memory()[0] < LARGE // 4, name
        finally:
            tracemalloc.stop()
        groups.asked[1].set_result(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        for _ in range(5):
            await asyncio.sleep(0)
        dispatcher.stop()

    asyncio.run(story())
    assert len(answers) == 1
