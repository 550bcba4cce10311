"""Forwards requests that only the controller can answer, from any broker to the controller, in an Envelope (KIP-590).

The envelope contains the caller, and the controller decides with its own ACLs whether the caller may do it: the
forwarding broker's ACLs may be older. Without a caller the request is the forwarding broker's own.

The client gets the controller's answer. A request that may have been executed is not sent again: the broker retries
only after an answer that says that nothing was done, or when the connection was refused.

Encodes the sender of a forwarded request as bytes for the controller, and decodes it there (KIP-590).

A principal is encoded as in Kafka: the version of `DefaultPrincipalData`, then that message.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Iterator
from struct import Struct
from typing import Any, TypeVar, cast

from broker.controller.error_responses import refused
from broker.errors import ErrorCode, ProtocolError
from broker.peers import Peers
from broker.protocol.api import (
    Api,
    ApiKey,
    api_of,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
    find_api,
)
from broker.protocol.codec import DecodeError, decode, decode_exactly, encoded
from broker.protocol.messages.broker_apis import EnvelopeRequest, EnvelopeResponse
from broker.protocol.schema import Bool, Message, String, v
from broker.security.authorizer import Caller
from broker.server.dispatch import ForCaller, RefusedRequest, RequestGuard
from broker.server.work_budget import most_entries


class DefaultPrincipalData(Message):
    """The sender of a request inside an envelope (KIP-590). `type` is `User`, as in `User:alice`."""

    VERSIONS = v("0")
    FLEXIBLE = v("0+")

    type: String = ""
    name: String = ""
    token_authenticated: Bool = False


VERSION = 0
_VERSION = Struct(">h")


def principal_bytes(caller: Caller) -> bytes:
    """The caller's principal, encoded."""
    kind, _, name = caller.principal.partition(":")
    return _VERSION.pack(VERSION) + encoded(DefaultPrincipalData(kind, name), VERSION)


def address_bytes(caller: Caller) -> bytes:
    """The caller's address, encoded; empty where it has none, as in the simulation, whose hosts have only names."""
    try:
        return ipaddress.ip_address(caller.host).packed
    except ValueError:
        return b""


def caller_of(principal: bytes, address: bytes) -> Caller:
    """The caller that these bytes encode. Raises `DecodeError`."""
    if len(principal) < _VERSION.size or _VERSION.unpack_from(principal)[0] != VERSION:
        raise DecodeError(f"an encoded principal starts with version {VERSION}")
    encoded_caller = decode_exactly(DefaultPrincipalData, VERSION, principal, _VERSION.size)
    try:
        host = str(ipaddress.ip_address(address)) if address else ""
    except ValueError:
        raise DecodeError(f"an address has 4 or 16 bytes, not {len(address)}") from None
    return Caller(f"{encoded_caller.type}:{encoded_caller.name}", host)


LENGTH_BYTES = 4  # the length field of a frame; the content of an envelope has none
DEFAULT_TIMEOUT_MS = 10_000  # for requests without a timeout field
LONGEST_TIMEOUT_MS = 60_000  # clients use 30 s; the bound limits how long the broker retries for a client
PAUSE_S = 0.05  # between two attempts, while the controller changes
ELSEWHERE = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER})

Q = TypeVar("Q", bound=Message)
Handler = Callable[[Q, int], Awaitable[Message]]


class ControllerForwarding:
    """Forwards requests. `controller_id` is the quorum's leader as far as this node knows."""

    def __init__(
        self,
        *,
        node_id: int,
        controller_id: Callable[[], int | None],
        peers: Peers,
        request_timeout_s: float,
        guard: RequestGuard | None = None,
    ) -> None:
        """`request_timeout_s`: how much longer than the request's own timeout the controller's answer may take.
        `guard` decides what callers may do; None: everything."""
        self._guard = guard
        self._node_id = node_id
        self._controller_id = controller_id
        self._peers = peers
        self._request_timeout_s = request_timeout_s
        self._handlers: dict[ApiKey, Handler[Any]] = {}

    def to_controller(self, key: ApiKey, handler: Handler[Q]) -> ForCaller[Q]:
        """A handler for any broker, made from one that answers NOT_CONTROLLER (or NOT_LEADER_OR_FOLLOWER) elsewhere."""
        self._handlers[key] = handler

        async def serve(request: Q, version: int, caller: Caller | None) -> Message:
            loop = asyncio.get_running_loop()
            give_up_at = loop.time() + timeout_of(request)
            while True:
                response = await self._ask(handler, request, version, caller)
                if not says_elsewhere(response) or loop.time() + PAUSE_S >= give_up_at:
                    return response
                await asyncio.sleep(PAUSE_S)

        return serve

    async def _ask(self, handler: Handler[Q], request: Q, version: int, caller: Caller | None) -> Message:
        controller = self._controller_id()
        if controller is None or controller == self._node_id:
            return await handler(request, version)
        envelope = EnvelopeRequest(request_data=bytes(encode_request(request, version, 0, None)[LENGTH_BYTES:]))
        if caller is not None:
            envelope.request_principal, envelope.client_host_address = principal_bytes(caller), address_bytes(caller)
        timeout = timeout_of(request) + self._request_timeout_s
        try:
            answer = await self._peers.request(controller, envelope, timeout)
            return _opened(api_of(request), version, answer)
        except ConnectionRefusedError:
            return refused(request, ProtocolError(ErrorCode.NOT_CONTROLLER, f"controller {controller} does not listen"))
        except (ConnectionError, TimeoutError) as error:
            message = f"controller {controller} has not answered; the request may still take effect: {error}"
            return refused(request, ProtocolError(ErrorCode.REQUEST_TIMED_OUT, message))
        except ProtocolError as error:
            return refused(request, error)

    async def handle_envelope(
        self, envelope: EnvelopeRequest, _version: int, sender: Caller | None
    ) -> EnvelopeResponse:
        """Envelope (58), from another broker: answered here, never forwarded again."""
        try:
            header, position = decode_request_header(envelope.request_data)
            api = find_api(header.api_key)
            if api is None or api.key not in self._handlers or not api.serves(header.api_version):
                return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
            entries_limit = most_entries(api.key)
            request = decode_exactly(
                api.request, header.api_version, envelope.request_data, position, most_entries=entries_limit
            )
        except DecodeError:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        try:
            principal = envelope.request_principal
            caller = sender if principal is None else caller_of(principal, envelope.client_host_address)
        except DecodeError:
            return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
        response = await self._decided(self._handlers[api.key], request, header.api_version, caller)
        frame = encode_response(api, response, header.api_version, header.correlation_id)
        return EnvelopeResponse(response_data=bytes(frame[LENGTH_BYTES:]))

    async def _decided(self, handler: Handler[Any], request: Message, version: int, caller: Caller | None) -> Message:
        """The answer to the part of a request that the caller may do."""
        if self._guard is None or caller is None:
            return await handler(request, version)
        try:
            permit = self._guard.check(request, version, caller)
        except RefusedRequest as refusal:
            return refusal.response
        response = await handler(permit.request, version)
        return response if permit.amend is None else permit.amend(response)


def _opened(api: Api, version: int, answer: EnvelopeResponse) -> Message:
    """The response inside an envelope. Raises `ProtocolError` when it was refused or cannot be decoded."""
    if answer.error_code != ErrorCode.NONE or answer.response_data is None:
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller refused the envelope: {answer.error_code}")
    try:
        _, position = decode_response_header(api, version, answer.response_data)
        response, _ = decode(api.response, version, answer.response_data, position)
    except DecodeError as error:
        raise ProtocolError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller's answer cannot be decoded: {error}"
        ) from error
    return response


def timeout_of(request: Message) -> float:
    """The request's own timeout in seconds, within the bounds."""
    asked_ms = cast(int, getattr(request, "timeout_ms", DEFAULT_TIMEOUT_MS))
    return min(max(0, asked_ms), LONGEST_TIMEOUT_MS) / 1000


def says_elsewhere(response: Message) -> bool:
    """Whether an answer says that another node is responsible and that nothing was done."""
    return any(code in ELSEWHERE for code in _error_codes(response))


def _error_codes(part: object) -> Iterator[int]:
    if isinstance(part, list):
        for element in part:
            yield from _error_codes(element)
    elif isinstance(part, Message):
        for name in part.__struct_fields__:
            value = getattr(part, name)
            if name == "error_code":
                yield value
            elif isinstance(value, list):
                yield from _error_codes(value)
