"""Valid names of topics, and the folder of a partition's tables: a topic's name in a history may look like a path."""

import re
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NO_TOPIC: Final = (".", "..")


def is_topic(name: str) -> bool:
    """Whether a topic may have this name: Kafka's own rule (`org.apache.kafka.common.internals.Topic`)."""
    return _TOPIC.fullmatch(name) is not None and name not in _NO_TOPIC


def folder_of(tables: Path, topic: str, partition: int) -> Path:
    """The folder of a partition's tables, below `tables`, for any topic name."""
    return tables / f"topic={quote(topic, safe='')}" / f"partition={partition}"


def partition_of(folder: Path) -> tuple[str, int]:
    """The topic and partition of a tables folder."""
    return unquote(folder.parent.name.removeprefix("topic=")), int(folder.name.removeprefix("partition="))
