"""librdkafka with `retries=0` sends a record to a second broker, and reports the refusal of that one.

    python librdkafka_resend.py [stays]

Two fake brokers on loopback, and no Kafka. The first one takes a record and does not answer. Then the metadata name the
second one as leader, and no longer list the first one. With `stays` the first one remains listed, for comparison. It
takes the package confluent-kafka.
"""

import socket
import struct
import sys
import threading
import time

from confluent_kafka import Producer, libversion

RECORD = b"the record"
REFUSED = 19  # NOT_ENOUGH_REPLICAS
STAYS = "stays" in sys.argv[1:]
SETTINGS = {
    "retries": 0,
    "enable.idempotence": False,
    "acks": "all",
    "linger.ms": 1,
    "topic.metadata.refresh.interval.ms": 300,
    "request.timeout.ms": 8000,
    "message.timeout.ms": 9000,
    "enable.metrics.push": False,
}
moved = threading.Event()
requests = []
ports = {}


def string(text):
    return struct.pack(">h", len(text)) + text.encode()


def array(items):
    return struct.pack(">i", len(items)) + b"".join(items)


def metadata():
    leader = 2 if moved.is_set() else 1
    listed = [2] if moved.is_set() and not STAYS else [1, 2]
    brokers = array(
        [struct.pack(">i", node) + string("127.0.0.1") + struct.pack(">ih", ports[node], -1) for node in listed]
    )
    replicas = array([struct.pack(">i", 1), struct.pack(">i", 2)])
    partition = struct.pack(">hii", 0, 0, leader) + replicas + array([struct.pack(">i", leader)])
    topic = struct.pack(">h", 0) + string("t") + b"\0" + array([partition])
    return brokers + string("cluster") + struct.pack(">i", 2) + array([topic])


def answer(node, api, version, body):
    if api == 18 and version > 0:  # ApiVersions
        return struct.pack(">h", 35) + array([])
    if api == 18:
        apis = {0: (0, 7), 1: (0, 4), 2: (0, 1), 3: (0, 2), 18: (0, 0)}
        return struct.pack(">h", 0) + array([struct.pack(">hhh", each, *span) for each, span in apis.items()])
    if api == 3:
        return metadata()
    if RECORD in body:
        requests.append(node)
    if node == 1:
        return None  # stored; the answer waits for replicas that do not come
    return array([string("t") + array([struct.pack(">ihqqq", 0, REFUSED, -1, -1, -1)])]) + struct.pack(">i", 0)


def serve(node, connection):
    data = connection.makefile("rb")
    while size := data.read(4):
        frame = data.read(struct.unpack(">i", size)[0])
        api, version, correlation, length = struct.unpack_from(">hhih", frame)
        body = answer(node, api, version, frame[10 + max(length, 0) :])
        if body is not None:
            message = struct.pack(">i", correlation) + body
            connection.sendall(struct.pack(">i", len(message)) + message)


def listen(node):
    listener = socket.create_server(("127.0.0.1", 0))
    ports[node] = listener.getsockname()[1]

    def accept():
        while True:
            threading.Thread(target=serve, args=(node, listener.accept()[0]), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


for number in (1, 2):
    listen(number)
producer = Producer({"bootstrap.servers": f"127.0.0.1:{ports[2]}", **SETTINGS})
reports = []
producer.produce(
    "t", RECORD, partition=0, on_delivery=lambda error, _: reports.append(error.name() if error else "stored")
)
start = time.monotonic()
while time.monotonic() < start + 12 and not reports:
    producer.poll(0.1)
    if requests and time.monotonic() > start + 2:
        moved.set()
print(f"librdkafka {libversion()[0]}, retries=0; the first broker {'stays' if STAYS else 'leaves the metadata'}")
print(f"brokers that got the record: {requests}; delivery report: {reports or 'none in 12 s'}")
