"""A ZooKeeper in memory, with a Kafka controller's part played by the test."""

import json
from collections.abc import Mapping
from typing import Any

from systems.apache_kafka_zk.kafka import UnansweredError, ZooKeeperClient


class FakeZnodes(ZooKeeperClient):
    """`content` by path; `refusal`, where set, is what every question fails with."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = {path: value if isinstance(value, bytes) else as_json(value) for path, value in content.items()}
        self.refusal: str | None = None
        self.closed = False

    def read(self, path: str) -> bytes | None:
        self._answer()
        return self.content.get(path)

    def children(self, path: str) -> list[str] | None:
        self._answer()
        below = [each.removeprefix(f"{path}/") for each in self.content if each.startswith(f"{path}/")]
        return sorted(each for each in below if "/" not in each) if below or path in self.content else None

    def create(self, path: str, content: bytes) -> bool:
        self._answer()
        if path in self.content or self.children(path.rpartition("/")[0]) is None:
            return False
        self.content[path] = content
        return True

    def delete(self, path: str) -> None:
        self._answer()
        self.content.pop(path, None)

    def close(self) -> None:
        self.closed = True

    def json(self, path: str) -> Any:
        return json.loads(self.content[path])

    def _answer(self) -> None:
        if self.refusal is not None:
            raise UnansweredError(self.refusal)


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()
