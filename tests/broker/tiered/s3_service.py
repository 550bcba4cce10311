"""A real S3 API on loopback, which moto's server provides, and credentials that must be nowhere."""

import base64
import importlib.util
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_connection

import pytest

from tests.broker.clients.harness import free_ports

KEY_ID, SECRET = "AKIAIOSFODNN7EXAMPLE", "a-secret/that+stays=here"
NEVER = 1 << 30


@contextmanager
def s3_service() -> Iterator[str]:
    """The address of a service with an empty `bucket`. The test is skipped if moto's server is not installed."""
    if not all(importlib.util.find_spec(name) for name in ("moto", "flask", "flask_cors")):
        pytest.skip("moto's server is not installed: pip install 'moto[server,s3]'")
    (port,) = free_ports(1)
    # The program `moto_server` names its interpreter, so it does not run in an environment that was moved.
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_for(port)
            address = f"http://127.0.0.1:{port}"
            urllib.request.urlopen(urllib.request.Request(f"{address}/bucket", method="PUT"), timeout=30).close()
            yield address
        finally:
            server.terminate()


def _wait_for(port: int) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert time.monotonic() < end, "moto_server does not listen"
            time.sleep(0.05)


def require_keys(address: str, after: int) -> None:
    """The service has no key, and refuses all requests after `after`."""
    url, headers = f"{address}/moto-api/reset-auth", {"Content-Type": "text/plain"}
    request = urllib.request.Request(url, data=str(after).encode(), headers=headers, method="POST")
    urllib.request.urlopen(request, timeout=30).close()


def write_credentials(path: Path) -> None:
    path.write_text(f"access.key.id={KEY_ID}\nsecret.access.key={SECRET}\n")


def traces_of_credentials(content: bytes) -> list[str]:
    """Which of the credentials the content has, in the encodings in which they could be in it."""
    return [
        credential
        for credential in (KEY_ID, SECRET)
        for encoded in _encodings(credential.encode())
        if encoded in content
    ]


def _encodings(value: bytes) -> set[bytes]:
    quoted = urllib.parse.quote(value, safe="").encode()
    return {value, base64.b64encode(value).rstrip(b"="), value.hex().encode(), quoted}
