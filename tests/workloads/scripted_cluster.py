"""Two scripted brokers that real Kafka libraries can produce to: what each answers, and when the leader moves.

The brokers understand ApiVersions, Metadata and Produce in old versions, as the protocol guide gives them. Partition 0
of the topic `log` is led by broker 1 until `move`, then by broker 2.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from broker.errors import ErrorCode

TOPIC = "log"
SILENT = None
"""An answer that never comes."""

_PRODUCE, _METADATA, _API_VERSIONS = 0, 3, 18
_APIS = {_PRODUCE: (0, 7), 1: (0, 4), 2: (0, 1), _METADATA: (0, 2), _API_VERSIONS: (0, 0)}  # lowest and highest version


@dataclass
class ScriptedCluster:
    """`answers`: by broker, what it answers to each Produce request. `leaves`: broker 1 leaves the metadata when the
    leader moves; otherwise it stays listed. `attempts`: the brokers that got a Produce request, in order."""

    answers: Mapping[int, ErrorCode | None]
    leaves: bool
    attempts: list[int] = field(default_factory=list)
    ports: dict[int, int] = field(default_factory=dict)
    received: threading.Event = field(default_factory=threading.Event)
    moved: threading.Event = field(default_factory=threading.Event)

    @property
    def bootstrap(self) -> str:
        """Broker 2: metadata come from the broker that stays."""
        return f"127.0.0.1:{self.ports[2]}"

    def move(self) -> None:
        """Broker 2 leads from now on."""
        self.moved.set()

    def serve(self, node: int, connection: socket.socket) -> None:
        """Answer the requests of one connection until it ends."""
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as requests:
            while size := requests.read(4):
                frame = requests.read(struct.unpack(">i", size)[0])
                key, version, correlation = struct.unpack_from(">hhi", frame)
                body = self._answer(node, key, version)
                if body is not None:
                    connection.sendall(struct.pack(">ii", 4 + len(body), correlation) + body)

    def _answer(self, node: int, key: int, version: int) -> bytes | None:
        if key == _API_VERSIONS and version > 0:
            return struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION) + _array([])
        if key == _API_VERSIONS:
            return struct.pack(">h", 0) + _array([struct.pack(">hhh", api, *span) for api, span in _APIS.items()])
        if key == _METADATA:
            return self._metadata()
        assert key == _PRODUCE, f"request {key} is not scripted"
        self.attempts.append(node)
        self.received.set()
        code = self.answers[node]
        if code is SILENT:
            return None
        if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.move()
        offset = 7 if code == ErrorCode.NONE else -1
        partition = struct.pack(">ihqqq", 0, code, offset, -1, 0)
        return _array([_string(TOPIC) + _array([partition])]) + struct.pack(">i", 0)

    def _metadata(self) -> bytes:
        leader = 2 if self.moved.is_set() else 1
        listed = [2] if leader == 2 and self.leaves else [1, 2]
        brokers = [struct.pack(">i", n) + _string("127.0.0.1") + struct.pack(">ih", self.ports[n], -1) for n in listed]
        ids = _array([struct.pack(">i", n) for n in (1, 2)])
        partition = struct.pack(">hii", 0, 0, leader) + ids + ids
        topic = struct.pack(">h", 0) + _string(TOPIC) + b"\0" + _array([partition])
        return _array(brokers) + _string("scripted") + struct.pack(">i", 2) + _array([topic])


@contextlib.contextmanager
def scripted(answers: Mapping[int, ErrorCode | None], *, leaves: bool) -> Iterator[ScriptedCluster]:
    """A cluster on loopback."""
    cluster = ScriptedCluster(answers, leaves)
    with contextlib.ExitStack() as open_:
        for node in (1, 2):
            listener = open_.enter_context(socket.create_server(("127.0.0.1", 0)))
            cluster.ports[node] = listener.getsockname()[1]
            _thread(lambda node=node, listener=listener: _accept(cluster, node, listener))  # type: ignore[misc]
        yield cluster


def _accept(cluster: ScriptedCluster, node: int, listener: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the listener is closed
        while True:
            connection, _ = listener.accept()
            _thread(lambda connection=connection: cluster.serve(node, connection))  # type: ignore[misc]


def _thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _array(items: Sequence[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)
