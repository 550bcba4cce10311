"""Maps request frames to handlers, and handlers' responses to frames: headers, versions, errors, permissions."""

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from broker.errors import ErrorCode, is_disk_failure
from broker.protocol.api import APIS, Api, ApiKey, advertised_api_keys, decode_request_header, encode_response, find_api
from broker.protocol.codec import DecodeError, decode, entries_decoded
from broker.protocol.messages.cluster_apis import ApiVersionsResponse
from broker.protocol.schema import Message
from broker.security.authorizer import Caller
from broker.server.connection import Connection, NotReady, Outcome, Rejected, Shortcut, Slot
from broker.server.reply import Reply
from broker.server.work_budget import Turns, Work, most_entries
from broker.trace import Tracer

DECODED_FOR_ONE = 20  # entries that are decoded in the time in which one is answered
ENCODED_FOR_ONE = 128  # bytes of a response that are encoded in that time
_NO_FRAME = memoryview(b"")


A = TypeVar("A")


class Call(NamedTuple):
    """One request as received. `frame` and what is decoded from it may be used only until the handler first awaits."""

    connection: Connection
    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    frame: memoryview
    body: int
    """The offset of the body in the frame."""

    def request(self, turns: Turns) -> Message:
        """Decode the request and charge its entries to this turn. Raises `DecodeError`, also for too many entries, and
        `RefusedRequest` when the sender may do nothing of it."""
        entries_limit = most_entries(self.api.key)
        request, _ = decode(self.api.request, self.version, self.frame, self.body, most_entries=entries_limit)
        turns.spend(1 + entries_decoded() // DECODED_FOR_ONE)
        return request

    @property
    def caller(self) -> Caller:
        """The principal and address of the sender."""
        return Caller(self.connection.principal, self.connection.address)

    @property
    def is_whole(self) -> bool:
        """Whether authorization has removed nothing from the request."""
        return True

    def amended(self, answer: A) -> A:
        """Adds the errors for the removed parts to the answer to `request`."""
        return answer

    def without_request(self) -> "Call":
        """What is needed to respond later, without the request and its frame: these would be kept in memory without
        being counted in any budget."""
        return self._replace(frame=_NO_FRAME)

    def respond(self, response: Message) -> bytes:
        """The whole response frame."""
        return bytes(encode_response(self.api, response, self.version, self.correlation_id))


class RefusedRequest(Exception):  # noqa: N818 - an answer, not a defect
    """The whole request is refused; `response` is the answer."""

    def __init__(self, response: Message) -> None:
        super().__init__(type(response).__name__)
        self.response = response


class Permit(NamedTuple):
    """The permitted part of a request. `amend` adds the refused parts to the answer; None: nothing was refused."""

    request: Message
    amend: Callable[[Any], Any] | None = None


class RequestGuard(Protocol):
    """Decides which parts of a request its sender may do."""

    def check(self, request: Message, version: int, caller: Caller) -> Permit:
        """The permitted part of a request. Raises `RefusedRequest` when there is no such part."""
        ...


class GuardedCall(Call):
    """A call whose handler sees only the part of the request that the sender may do."""

    guard: RequestGuard
    """The listener's guard: see `guarded_by`."""
    permit: Permit

    @staticmethod
    def guarded_by(guard: RequestGuard) -> type["GuardedCall"]:
        """The call type of a listener with authorization."""
        return type("GuardedCall", (GuardedCall,), {"guard": guard})

    def request(self, turns: Turns) -> Message:
        self.permit = self.guard.check(super().request(turns), self.version, self.caller)
        return self.permit.request

    @property
    def is_whole(self) -> bool:
        return self.permit.amend is None

    def amended(self, answer: A) -> A:
        return answer if self.permit.amend is None else self.permit.amend(answer)

    def without_request(self) -> "GuardedCall":
        call = self._replace(frame=_NO_FRAME)
        call.permit = Permit(type(self.permit.request)(), self.permit.amend)
        return call

    def respond(self, response: Message) -> bytes:
        return super().respond(self.amended(response))


Serve = Callable[[Call], Outcome]
"""Answers a call: at once, or through a slot of its connection. May raise `DecodeError` and `Rejected`."""

Q = TypeVar("Q", bound=Message)
Now = Callable[[Q, int], Message]
Later = Callable[[Q, int], Awaitable[Message]]
ForCaller = Callable[[Q, int, Caller | None], Awaitable[Message]]
"""A handler that gets the caller; None: the request is this broker's own."""
InTurns = Callable[[Q, int], Work[Message]]


class LocalCalls:
    """The requests that a broker can send to itself, without a connection."""

    def __init__(self) -> None:
        self._handlers: dict[type[Message], Later[Any]] = {}

    def add(self, request: type[Message], handler: Later[Q]) -> None:
        self._handlers[request] = handler

    async def call(self, request: Message, version: int) -> Message:
        """Returns the answer. Raises `ConnectionError` when this broker does not serve the request."""
        handler = self._handlers.get(type(request))
        if handler is None:
            raise ConnectionError(f"this broker does not serve {type(request).__name__}")
        return await handler(request, version)


class Dispatcher:
    """The handlers of one listener by API key. An API without a handler is not served there.

    `on_disk_failure` gets disk errors: only these end the broker. All listeners of a node share `turns` and `local`;
    None: this is the only listener.
    """

    def __init__(
        self,
        tracer: Tracer,
        on_disk_failure: Callable[[OSError], None],
        *,
        turns: Turns | None = None,
        local: LocalCalls | None = None,
        guard: RequestGuard | None = None,
    ) -> None:
        """`guard` None: every peer may do everything, and requests are not checked."""
        self._call = Call if guard is None else GuardedCall.guarded_by(guard)
        self._tracer = tracer
        self._on_disk_failure = on_disk_failure
        self._routes: dict[int, tuple[Api, Serve]] = {}
        self._running: dict[asyncio.Task[None], None] = {}  # in the order in which they started
        self.turns = turns or Turns()
        self.local = local or LocalCalls()

    # --- building the table

    def serve(self, key: ApiKey, handler: Serve) -> None:
        """Serve this API with `handler`, which decodes the request itself."""
        self._routes[int(key)] = (APIS[key], handler)

    def answer_now(self, key: ApiKey, handler: Now[Q]) -> None:
        """Serve with `handler(request, version)`, which returns the response without waiting."""

        def serve(call: Call) -> Outcome:
            answer = call.respond(handler(call.request(self.turns), call.version))  # type: ignore[arg-type]
            self.turns.spend(len(answer) // ENCODED_FOR_ONE)
            return answer

        self.serve(key, serve)

    def answer_in_turns(self, key: ApiKey, handler: InTurns[Q]) -> None:
        """Serve with `handler(request, version)`, which yields after each entry and returns the response.

        Work that exceeds the budget of this turn continues in later turns; the connection's next request waits for it.
        """

        def serve(call: Call) -> Outcome:
            work = handler(call.request(self.turns), call.version)  # type: ignore[arg-type]
            if (response := self.turns.advance(work)) is not None:
                return call.respond(response)
            return self.later(call, frame_later(call, self.turns.finish(work)), blocking=True)

        self.serve(key, serve)

    def answer_later(
        self, key: ApiKey, handler: Later[Q], *, observe: Callable[[Q, Connection], None] | None = None
    ) -> None:
        """Serve with the coroutine `handler(request, version)`; the connection's next request waits, as in Kafka.

        `observe` is called with each request and its connection.
        """

        def serve(call: Call) -> Outcome:
            request = call.request(self.turns)
            if observe is not None:
                observe(request, call.connection)  # type: ignore[arg-type]
            return self.later(call, frame_later(call, handler(request, call.version)), blocking=True)  # type: ignore[arg-type]

        self.serve(key, serve)
        self.local.add(APIS[key].request, handler)

    def answer_caller(self, key: ApiKey, handler: ForCaller[Q]) -> None:
        """`answer_later`, with a `handler(request, version, caller)`."""

        def serve(call: Call) -> Outcome:
            request = call.request(self.turns)
            work = handler(request, call.version, call.caller)  # type: ignore[arg-type]
            return self.later(call, frame_later(call, work), blocking=True)

        async def of_this_broker(request: Q, version: int) -> Message:
            return await handler(request, version, None)

        self.serve(key, serve)
        self.local.add(APIS[key].request, of_this_broker)

    # --- answering

    @property
    def turn_is_over(self) -> bool:
        """Whether this turn of the loop has used its work budget."""
        return self.turns.is_over

    def dispatch(self, connection: Connection, frame: memoryview) -> Outcome:
        """Answer one frame. Raises `Rejected` for a frame that breaks the protocol."""
        try:
            header, body = decode_request_header(frame)
            route = self._routes.get(header.api_key)
            if route is None:
                raise Rejected(_not_served(header.api_key))
            api, serve = route
            if not api.serves(header.api_version):
                return _unsupported_version(api, header.api_version, header.correlation_id)
            call = self._call(connection, api, header.api_version, header.correlation_id, header.client_id, frame, body)
            return serve(call)
        except RefusedRequest as refused:
            return bytes(encode_response(api, refused.response, header.api_version, header.correlation_id))
        except DecodeError as error:
            raise Rejected(str(error)) from error
        except Rejected:
            raise
        except Exception as error:
            self._failed(int.from_bytes(frame[:2], "big"), error)
            raise Rejected(f"the request failed: {error}") from error

    def finish(self, shortcut: Shortcut) -> Outcome:
        """Answer the requests that a shortcut has gathered. Raises `Rejected`."""
        try:
            return shortcut.finish()
        except Exception as error:
            self._failed(int(ApiKey.PRODUCE), error)
            raise Rejected(f"the requests failed: {error}") from error

    def later(self, call: Call, work: Awaitable[Reply], *, blocking: bool, only_for_peer: bool = False) -> Slot:
        """Run `work` as a task and fill a slot with its reply. `blocking`: the connection's next request waits for it.
        `only_for_peer`: it is cancelled when the connection is lost."""
        connection, key = call.connection, call.api.key
        slot = connection.reserve(blocking=blocking)

        async def finish() -> None:
            try:
                slot.fill(await work)
            except NotReady as not_ready:
                self._tracer.emit("not_ready", reason=str(not_ready))
                connection.abort()
            except Exception as error:
                self._failed(int(key), error)
                connection.reject(f"{key.name} failed: {error}")

        task = asyncio.get_running_loop().create_task(finish())
        self._running[task] = None
        task.add_done_callback(self._running.pop)
        if only_for_peer:
            connection.cancel_when_lost(task)
        return slot

    def stop(self) -> None:
        """Cancel the requests that are still under way."""
        for task in list(self._running):
            if inspect.getcoroutinestate(task.get_coro()) == inspect.CORO_CREATED:  # type: ignore[arg-type]
                # Work whose task is cancelled before its first step never starts, and a parked fetch never leaves.
                asyncio.get_running_loop().call_soon(task.cancel)
            else:
                task.cancel()

    def _failed(self, key: int, error: Exception) -> None:
        """A defect of a handler closes one connection; a disk error ends the broker."""
        if is_disk_failure(error):
            assert isinstance(error, OSError)
            self._on_disk_failure(error)
            return
        text = "".join(traceback.format_exception(error))
        self._tracer.emit("request_failed", error=text[-4000:], api=key)


def frame_later(call: Call, response: Awaitable[Message]) -> Awaitable[Reply]:
    """The whole response to a call, once it is available. The request is not kept in memory until then."""
    return _framed(call.without_request(), response)


async def _framed(call: Call, response: Awaitable[Message]) -> Reply:
    return [call.respond(await response)]


def _not_served(key: int) -> str:
    api = find_api(key)
    return f"there is no API {key}" if api is None else f"{api.key.name} is not served at this listener"


def _unsupported_version(api: Api, version: int, correlation_id: int) -> bytes:
    """ApiVersions is answered in version 0 with the served versions (KIP-511), which every client can decode."""
    if api.key is not ApiKey.API_VERSIONS:
        raise Rejected(f"{api.key.name} has no version {version}: {api.min_version} to {api.max_version}")
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=advertised_api_keys())
    return bytes(encode_response(api, response, 0, correlation_id))
