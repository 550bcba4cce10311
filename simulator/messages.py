"""Records the messages of simulated processes: whole requests and answers, assembled from connections' bytes.

Recording is invisible to the simulated world: a recorded run is the same run, with the same digest.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from broker.errors import ErrorCode
from broker.protocol.api import Api, ApiKey, decode_request_header, decode_response_header, find_api
from broker.protocol.codec import DecodeError, decode
from broker.protocol.messages.broker_apis import EnvelopeRequest
from broker.protocol.schema import Message
from simulator.network import Pipe

_LENGTH: Final = 4  # bytes of a frame's length
_FIRST_CLIENT_PORT: Final = 32_768  # lower ports are listeners

SHOWN: Final = {
    "fetch_offset": "from",
    "last_fetched_epoch": "epoch",
    "replica_epoch": "epoch",
    "leader_epoch": "epoch",
    "current_leader_epoch": "",
    "replica_id": "replica",
    "vote_granted": "granted",
    "pre_vote": "pre-vote",
    "leader_id": "leader",
    "high_watermark": "hw",
    "base_offset": "at",
    "last_offset": "log to",
    "end_offset": "end",
    "isr": "isr",
    "acks": "acks",
    "broker_id": "broker",
    "want_fence": "to be fenced",
    "want_shut_down": "to shut down",
    "should_shut_down": "may shut down",
    "is_fenced": "fenced",
}
"""The recorded fields of messages, each with its label; a field without a label is left out on purpose."""

_ROUTINE: Final = frozenset(
    {ApiKey.BROKER_HEARTBEAT, ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.DESCRIBE_QUORUM, ApiKey.DESCRIBE_CLUSTER}
)
"""Messages that are sent regularly whatever happens."""
_NO_LIMIT: Final = (1 << 63) - 1


class Said(msgspec.Struct, omit_defaults=True):
    """One request or answer. Times in virtual seconds; `arrived_s` None: its last byte was lost.

    `source` and `target` are hosts, `what` is the API's name, `text` summarises the content. `routine`: it is sent
    regularly, or had no new content. `size`: bytes, with the frame's length."""

    source: str
    target: str
    what: str
    answer: bool
    sent_s: float
    arrived_s: float | None
    size: int
    text: str = ""
    routine: bool = False


class Recorder:
    """Records all connections of a network. `said` has the messages in the order in which they were sent."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.said: list[Said] = []
        self._clock = clock
        self._ways: dict[Pipe, _Way] = {}
        self._asked: dict[tuple[int, int], tuple[Api, int, Said]] = {}

    def sent(self, pipe: Pipe, data: bytes) -> None:
        """Bytes were sent."""
        way = self._ways.get(pipe)
        if way is None:
            way = self._ways[pipe] = _Way()
        for frame in way.feed(data):
            record = self._understand(pipe, frame)
            record.sent_s, record.size = self._clock(), len(frame) + _LENGTH
            way.under_way.append((way.framed, record))
            self.said.append(record)

    def arrived(self, pipe: Pipe, size: int) -> None:
        """`size` bytes have arrived at the other end's kernel."""
        way = self._ways[pipe]
        way.arrived += size
        while way.under_way and way.under_way[0][0] <= way.arrived:
            way.under_way.popleft()[1].arrived_s = self._clock()

    def _understand(self, pipe: Pipe, frame: bytes) -> Said:
        asks = pipe.target.get_extra_info("sockname")[1] < _FIRST_CLIENT_PORT
        record = Said(pipe.source.host.name, pipe.target.host.name, "?", not asks, 0.0, None, 0)
        try:
            self._read_request(pipe, frame, record) if asks else self._read_answer(pipe, frame, record)
        except DecodeError as error:  # clients may send anything; then the error is shown
            record.text = str(error)
        return record

    def _read_request(self, pipe: Pipe, frame: bytes, record: Said) -> None:
        header, position = decode_request_header(frame)
        api = find_api(header.api_key)
        if api is None:
            record.what = f"api {header.api_key}"
            return
        record.what = _title(api)
        record.routine = api.key in _ROUTINE
        self._asked[pipe.source.number, header.correlation_id] = api, header.api_version, record
        message, _ = decode(api.request, header.api_version, frame, position)
        record.text = text_of(message)
        if isinstance(message, EnvelopeRequest):  # show the forwarded request
            inner = find_api(decode_request_header(message.request_data)[0].api_key)
            record.text, record.routine = _title(inner) if inner else "", inner is not None and inner.key in _ROUTINE

    def _read_answer(self, pipe: Pipe, frame: bytes, record: Said) -> None:
        sent_request = self._asked.pop((pipe.target.number, int.from_bytes(frame[:4], "big", signed=True)), None)
        if sent_request is None:
            return
        api, version, request = sent_request
        record.what, record.routine = _title(api), request.routine
        _, position = decode_response_header(api, version, frame)
        message, _ = decode(api.response, version, frame, position)
        record.text = text_of(message)
        if api.key is ApiKey.FETCH and not any(mark in record.text for mark in (" B", "_", "end")):
            record.routine = request.routine = True


class _Way:
    """One direction of a connection: an incomplete frame, and frames whose last byte is in transit."""

    def __init__(self) -> None:
        self.framed = self.arrived = 0  # bytes
        self.under_way: deque[tuple[int, Said]] = deque()
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that these bytes complete; `framed` is where each ends."""
        self._rest += data
        while len(self._rest) >= _LENGTH:
            end = _LENGTH + int.from_bytes(self._rest[:_LENGTH], "big")
            if len(self._rest) < end:
                return
            frame = bytes(self._rest[_LENGTH:end])
            del self._rest[:end]
            self.framed += end
            yield frame


def text_of(message: Message) -> str:
    """A short summary of a message: for each partition its offsets, epochs, sets and errors."""
    return ", ".join(_words(message)).replace(":, ", ": ")


def _words(message: Message) -> Iterator[str]:
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name in ("partition", "partition_index", "index"):
            yield f"p{value}:"
        elif name.endswith("error_code"):
            if value:
                yield _error(value)
        elif name in ("records", "record_set") and value:
            yield f"{len(value)} B"
        elif name in ("topic", "name", "topic_name") and value and isinstance(value, str):
            yield value
        elif name == "new_isr_with_epochs":
            yield f"isr {[member.broker_id for member in value]}"
        elif SHOWN.get(name):
            yield from _field(SHOWN[name], value)
        elif isinstance(value, Message):
            yield from _words(value)
        elif isinstance(value, list):
            for element in value:
                if isinstance(element, Message):
                    yield from _words(element)


def _field(called: str, value: Any) -> Iterator[str]:
    """A labelled value; empty for the value that means "none"."""
    if value is True:
        yield called
    elif value is not False and value not in (-1, _NO_LIMIT, None):
        yield f"{called} {value}"


def _error(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error_{code}"


def _title(api: Api) -> str:
    return "".join(word.capitalize() for word in api.key.name.split("_"))
