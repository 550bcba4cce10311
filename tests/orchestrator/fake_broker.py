"""A minimal broker: answers requests on a socket by a test's function."""

import contextlib
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator

from broker.protocol.api import decode_request_header, encode_response, find_api
from broker.protocol.codec import decode
from broker.protocol.schema import Message

Answer = Callable[[Message], Message | bytes]


@contextlib.contextmanager
def fake_broker(answer: Answer) -> Iterator[tuple[str, int]]:
    """Serve until the end of the context; the address. `answer` gives a response, or raw bytes for a broken one."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            (length,) = struct.unpack(">i", self.request.recv(4, 0x100))
            body = b""
            while len(body) < length:
                body += self.request.recv(length - len(body))
            header, position = decode_request_header(body)
            api = find_api(header.api_key)
            assert api is not None
            response = answer(decode(api.request, header.api_version, body, position)[0])
            if not isinstance(response, bytes):
                response = bytes(encode_response(api, response, header.api_version, header.correlation_id))
            self.request.sendall(response)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield ("127.0.0.1", server.server_address[1])
        server.shutdown()
