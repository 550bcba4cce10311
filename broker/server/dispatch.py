"""From a request frame to its handler and back: headers, versions, errors; no knowledge of what requests mean."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from broker.errors import ErrorCode, is_disk_failure
from broker.protocol.api import APIS, Api, ApiKey, advertised_api_keys, decode_request_header, encode_response
from broker.protocol.codec import DecodeError, decode, entries_decoded
from broker.protocol.messages.api_versions import ApiVersionsResponse
from broker.protocol.schema import Message
from broker.server.connection import Connection, NotReady, Outcome, Rejected, Shortcut, Slot
from broker.server.reply import Reply
from broker.server.turns import Turns, Work
from broker.trace import Tracer

# The most elements that the arrays of one request may have together. Fetch and Produce are served within one turn of
# the loop.
MOST_ENTRIES = {ApiKey.FETCH: 20_000, ApiKey.PRODUCE: 20_000}
MOST_ENTRIES_ELSEWHERE = 100_000
DECODED_FOR_ONE = 20  # entries that are decoded in the time in which one is answered


class Call(NamedTuple):
    """One request as it came in. `frame` and what is decoded from it may be used only until the handler first waits."""

    connection: Connection
    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    frame: memoryview
    body: int
    """Where the body begins in the frame."""

    def request(self, turns: Turns) -> Message:
        """The request in the frame; its entries count in this turn. Raises `DecodeError`, also for too many of them."""
        most = MOST_ENTRIES.get(self.api.key, MOST_ENTRIES_ELSEWHERE)
        request, _ = decode(self.api.request, self.version, self.frame, self.body, most_entries=most)
        turns.spend(1 + entries_decoded() // DECODED_FOR_ONE)
        return request


Serve = Callable[[Call], Outcome]
"""Answers a call: at once, or through a slot of its connection. May raise `DecodeError` and `Rejected`."""

Q = TypeVar("Q", bound=Message)
Now = Callable[[Q, int], Message]
Later = Callable[[Q, int], Awaitable[Message]]
InTurns = Callable[[Q, int], Work[Message]]


class Dispatcher:
    """The table of handlers. `on_disk_failure` is told of errors of the disk: no other failure concerns the broker."""

    def __init__(self, tracer: Tracer, on_disk_failure: Callable[[OSError], None]) -> None:
        self._tracer = tracer
        self._on_disk_failure = on_disk_failure
        self._routes: dict[int, tuple[Api, Serve]] = {}
        self._local: dict[type[Message], Later[Message]] = {}
        self._running: dict[asyncio.Task[None], None] = {}  # in the order in which they began
        self.turns = Turns()

    # --- building the table

    def serve(self, key: ApiKey, handler: Serve) -> None:
        """Requests of this API are answered by `handler`, which decodes them itself."""
        self._routes[int(key)] = (APIS[key], handler)

    def answer_now(self, key: ApiKey, handler: Now[Q]) -> None:
        """`handler(request, version)` returns the response without waiting."""

        def serve(call: Call) -> Outcome:
            return response_frame(call, handler(call.request(self.turns), call.version))  # type: ignore[arg-type]

        self.serve(key, serve)

    def answer_in_turns(self, key: ApiKey, handler: InTurns[Q]) -> None:
        """`handler(request, version)` yields after each entry that it has answered, and returns the response.

        What is more than this turn of the loop has room for is done in later ones; the connection's next request waits
        for it.
        """

        def serve(call: Call) -> Outcome:
            work = handler(call.request(self.turns), call.version)  # type: ignore[arg-type]
            if (response := self.turns.advance(work)) is not None:
                return response_frame(call, response)
            return self.later(call, frame_later(call, self.turns.finish(work)), blocking=True)

        self.serve(key, serve)

    def answer_later(
        self, key: ApiKey, handler: Later[Q], *, observe: Callable[[Q, Connection], None] | None = None
    ) -> None:
        """`handler(request, version)` is a coroutine; the connection's next request waits for it, as in Kafka.

        `observe` is shown each request together with the connection that it came over.
        """

        def serve(call: Call) -> Outcome:
            request = call.request(self.turns)
            if observe is not None:
                observe(request, call.connection)  # type: ignore[arg-type]
            return self.later(call, frame_later(call, handler(request, call.version)), blocking=True)  # type: ignore[arg-type]

        self.serve(key, serve)
        self._local[APIS[key].request] = handler  # type: ignore[assignment]

    # --- answering

    @property
    def turn_is_over(self) -> bool:
        """Whether enough has been done in this turn of the loop."""
        return self.turns.is_over

    def dispatch(self, connection: Connection, frame: memoryview) -> Outcome:
        """Answer one frame. Raises `Rejected` for what no client may send."""
        try:
            header, body = decode_request_header(frame)
            route = self._routes.get(header.api_key)
            if route is None:
                raise Rejected(f"there is no API {header.api_key}")
            api, serve = route
            if not api.serves(header.api_version):
                return _unsupported_version(api, header.api_version, header.correlation_id)
            call = Call(connection, api, header.api_version, header.correlation_id, header.client_id, frame, body)
            return serve(call)
        except DecodeError as error:
            raise Rejected(str(error)) from error
        except Rejected:
            raise
        except Exception as error:
            self._failed(int.from_bytes(frame[:2], "big"), error)
            raise Rejected(f"the request failed: {error}") from error

    def finish(self, shortcut: Shortcut) -> Outcome:
        """Answer what a shortcut has gathered. Raises `Rejected`."""
        try:
            return shortcut.finish()
        except Exception as error:
            self._failed(int(ApiKey.PRODUCE), error)
            raise Rejected(f"the requests failed: {error}") from error

    async def call_locally(self, request: Message, version: int) -> Message:
        """Answer a request of this broker to itself. Raises `ConnectionError` when it fails."""
        return await self._local[type(request)](request, version)

    def later(self, call: Call, work: Awaitable[Reply], *, blocking: bool, only_for_peer: bool = False) -> Slot:
        """Run `work` as a task of its own and fill a slot with its reply. `blocking`: the connection's next request
        waits for it. `only_for_peer`: it is given up when the peer goes away."""
        slot = call.connection.reserve(blocking=blocking)

        async def finish() -> None:
            try:
                slot.fill(await work)
            except NotReady as not_ready:
                self._tracer.emit("not_ready", reason=str(not_ready))
                call.connection.abort()
            except Exception as error:
                self._failed(int(call.api.key), error)
                call.connection.reject(f"{call.api.key.name} failed: {error}")

        task = asyncio.get_running_loop().create_task(finish())
        self._running[task] = None
        task.add_done_callback(self._running.pop)
        if only_for_peer:
            call.connection.cancel_when_lost(task)
        return slot

    def stop(self) -> None:
        """Abandon the requests that are still under way."""
        for task in list(self._running):
            task.cancel()

    def _failed(self, key: int, error: Exception) -> None:
        """A defect of a handler costs one connection; an error of the disk costs the broker."""
        if is_disk_failure(error):
            assert isinstance(error, OSError)
            self._on_disk_failure(error)
            return
        text = "".join(traceback.format_exception(error))
        self._tracer.emit("request_failed", error=text[-4000:], api=key)


async def frame_later(call: Call, response: Awaitable[Message]) -> Reply:
    """The whole response to a call, once it is there."""
    return [response_frame(call, await response)]


def response_frame(call: Call, response: Message) -> bytes:
    """A whole response to a call."""
    return bytes(encode_response(call.api, response, call.version, call.correlation_id))


def _unsupported_version(api: Api, version: int, correlation_id: int) -> bytes:
    """ApiVersions is answered in version 0 with what is served (KIP-511); nothing else could be understood."""
    if api.key is not ApiKey.API_VERSIONS:
        raise Rejected(f"{api.key.name} has no version {version}: {api.min_version} to {api.max_version}")
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=advertised_api_keys())
    return bytes(encode_response(api, response, 0, correlation_id))
