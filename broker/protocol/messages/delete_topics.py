"""DeleteTopics (20)."""

from __future__ import annotations

from typing import Annotated

from broker.protocol.schema import NO_ID, Int16, Int32, Message, Nullable, ServedApi, String, Uuid, v


class DeleteTopicState(Message):
    name: String | None = None
    topic_id: Uuid = NO_ID


class DeleteTopicsRequest(Message):
    """Topics are named in `topic_names` up to version 5, in `topics` from 6 on."""

    API = ServedApi(20, v("1-6"))
    VERSIONS = v("1-6")
    FLEXIBLE = v("4+")

    topics: Annotated[list[DeleteTopicState], v("6+")] = []
    topic_names: Annotated[list[String], v("0-5")] = []
    timeout_ms: Int32 = 0


class DeletableTopicResult(Message):
    name: Annotated[String | None, Nullable("6+")] = ""
    topic_id: Annotated[Uuid, v("6+")] = NO_ID
    error_code: Int16 = 0
    error_message: Annotated[String | None, v("5+")] = None


class DeleteTopicsResponse(Message):
    VERSIONS = v("1-6")
    FLEXIBLE = v("4+")

    throttle_time_ms: Annotated[Int32, v("1+")] = 0
    responses: list[DeletableTopicResult] = []
