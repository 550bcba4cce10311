"""Nodes as systems see them, of no world."""

from __future__ import annotations

from pathlib import Path

from orchestrator.worlds.base import Node


def place(number: int, *, is_local: bool = True) -> Node:
    name = f"n{number}"
    return Node(
        name=name,
        id=number,
        address=f"10.77.0.{number}",
        ports={"client": number},
        data_dir="/data",
        etc_dir="/etc/x",
        var_dir="/var/x",
        record_dir=Path(name),
        is_local=is_local,
    )
