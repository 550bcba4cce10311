"""A stand-in for the broker: listens at its configured port, appends its input to one log, ends on SIGTERM.

Tests of worlds and faults use it, so that they need no working cluster.
"""

import os
import signal
import socketserver
import sys
from pathlib import Path


def properties(path: str) -> dict[str, str]:
    lines = Path(path).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


class Appender(socketserver.StreamRequestHandler):
    """Appends each line to the log; a line that starts with `!` is synced before it is acknowledged."""

    log = -1

    def handle(self) -> None:
        for line in self.rfile:
            os.write(self.log, line)
            if line.startswith(b"!"):
                os.fsync(self.log)
            self.wfile.write(b"ok\n")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def main() -> None:
    given = properties(sys.argv[sys.argv.index("--config") + 1])
    if "refuse" in given:
        sys.exit(f"refused: {given['refuse']}")
    directory = Path(given["log.dir"], "topic-0")
    directory.mkdir(parents=True, exist_ok=True)
    Appender.log = os.open(directory / f"{0:020}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    Path(directory, "leader-epoch-checkpoint").write_text("0\n0\n")
    Path(directory, f"{0:020}.index").write_text("not collected")
    Path(given["log.dir"], "replication-offset-checkpoint").write_text("0\n0\n")
    host, _, port = given["listeners"].removeprefix("PLAINTEXT://").rpartition(":")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    print("arguments:", *sys.argv[1:], flush=True)
    with open(given["trace.path"], "a") as trace:
        trace.write('{"event": "broker_started"}\n')
    Server((host, int(port)), Appender).serve_forever()


if __name__ == "__main__":
    main()
