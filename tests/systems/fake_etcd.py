"""A member of etcd as its JSON gateway shows it: keys in memory, one member, and answers that go wrong on demand.

As a program it is a whole system for runs: `python -m tests.systems.fake_etcd ADDRESS PORT`.
"""

import base64
import json
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Request = dict[str, Any]


@dataclass(frozen=True)
class Wrong:
    """The outcome of one request of a key instead of an answer. `applied`: the request is carried out.

    `status` 0: the connection is closed without an answer; -1: neither happens until the fake is stopped. `closes`: the
    connection is closed after the answer, which announces it (`announced`) or not (`abrupt`).
    """

    status: int
    body: str = ""
    applied: bool = False
    closes: Literal["", "announced", "abrupt"] = ""


CLOSED = Wrong(0)
SILENT = Wrong(-1)


def error(status: int, text: str) -> Wrong:
    """An error in etcd's form."""
    return Wrong(status, json.dumps({"error": text, "message": text, "code": 14}))


@dataclass
class FakeEtcd:
    """`coming`: what the next requests of keys meet, one each. `asked`: the paths of all requests, in their order."""

    address: str = "127.0.0.1"
    port: int = 0
    id: str = "11"
    leader: str = "11"
    term: int = 2
    values: dict[str, str] = field(default_factory=dict)
    coming: deque[Wrong] = field(default_factory=deque)
    asked: list[tuple[str, Request]] = field(default_factory=list)

    def __post_init__(self) -> None:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = fake.answer(self.path, request)
                self.close_connection = answer.status <= 0 or answer.closes != ""
                if answer.status > 0:
                    self.send_response(answer.status)
                    self.send_header("Content-Length", str(len(answer.body)))
                    if answer.closes == "announced":
                        self.send_header("Connection", "close")
                    self.end_headers()
                    self.wfile.write(answer.body.encode())

            def log_message(self, format: str, *args: object) -> None: ...

        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self.server = ThreadingHTTPServer((self.address, self.port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port

    @property
    def endpoint(self) -> str:
        return f"{self.address}:{self.port}"

    def start(self) -> None:
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()
        self.server.shutdown()
        self.server.server_close()

    def answer(self, path: str, request: Request) -> Wrong:
        """What this request gets."""
        with self._lock:
            self.asked.append((path, request))
            if path == "/v3/maintenance/status":
                return Wrong(200, json.dumps(self._status()))
            wrong = self.coming.popleft() if self.coming else None
            if wrong is None or wrong.applied:
                body = json.dumps(_CARRIED_OUT[path](self, request))
        if wrong is None:
            return Wrong(200, body)
        if wrong == SILENT:
            self._stopping.wait()
        return wrong

    def _status(self) -> Request:
        known = {"leader": self.leader} if self.leader else {}
        return {"header": {"member_id": self.id}, "raftTerm": str(self.term), **known}

    def range(self, request: Request) -> Request:
        found = self.values.get(request["key"])
        if found is None:
            return {}
        return {"kvs": [{"key": request["key"], **({"value": found} if found else {})}], "count": "1"}

    def put(self, request: Request) -> Request:
        base64.b64decode(request["value"], validate=True)
        self.values[request["key"]] = request["value"]
        return {}

    def txn(self, request: Request) -> Request:
        (compare,) = request["compare"]
        found = self.values.get(compare["key"])
        if compare["target"] == "VERSION":
            holds = compare["version"] == "0" and found is None
        else:
            holds = found is not None and found == compare["value"]
        if not holds:
            return {}
        for each in request["success"]:
            self.put(each["request_put"])
        return {"succeeded": True}


_CARRIED_OUT: dict[str, Callable[[FakeEtcd, Request], Request]] = {
    "/v3/kv/range": FakeEtcd.range,
    "/v3/kv/put": FakeEtcd.put,
    "/v3/kv/txn": FakeEtcd.txn,
}


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        FakeEtcd(sys.argv[1], int(sys.argv[2])).server.serve_forever()
