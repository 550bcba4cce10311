"""A server of a store in a separate process."""

import contextlib
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Answer:
    code: int
    text: str
    headers: Any


@dataclass(frozen=True)
class Server:
    """A server process; `address` is what it printed for its index."""

    process: subprocess.Popen[str]
    address: str

    @property
    def base(self) -> str:
        return self.address.split("?")[0].rstrip("/")

    def get(self, path: str, **headers: str) -> Answer:
        request = urllib.request.Request(f"{self.base}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return Answer(answer.status, answer.read().decode(), answer.headers)
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read().decode(), error.headers)

    def get_bytes(self, path: str) -> bytes:
        """The content of a file. Raises `HTTPError` without one."""
        with urllib.request.urlopen(f"{self.base}{path}", timeout=20) as answer:
            content: bytes = answer.read()
        return content


@contextlib.contextmanager
def served(store: Path, *options: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "orchestrator", "serve", "--store", str(store), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            found = re.search(r"http://\S+", first)
            assert found, first + process.stdout.read()
            yield Server(process, found[0])
        finally:
            process.kill()
