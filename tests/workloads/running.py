"""Client processes for tests, with the settings that a run would give them."""

from pathlib import Path
from typing import Any

from workloads.kinds import KINDS
from workloads.process import ClientProcess
from workloads.settings import ClientSettings, OwnClient

HERE = Path(__file__).parent


def own(tmp_path: Path, name: str, **changes: Any) -> OwnClient:
    """A class of `own_clients.py`, as a user names one."""
    fields: dict[str, Any] = {
        "client_class": f"{HERE / 'own_clients.py'}:{name}",
        "options": {"file": str(tmp_path / "store.json")},
    }
    return OwnClient(**{**fields, **changes})


def settings(tmp_path: Path, kind: str, client: str, number: int, **changes: Any) -> ClientSettings:
    """`parameters` are added to the kind's defaults."""
    parameters = {each.key: each.default for each in KINDS[kind].parameters} | changes.pop("parameters", {})
    fields: dict[str, Any] = {
        "client": client,
        "process": number,
        "producer": number,
        "session": 1,
        "seed": number,
        "bootstrap": "n1:1,n2:2",
        "topic": "log",
        "partitions": 2,
        "directory": str(tmp_path / "history" / "operations"),
        "rate": 200.0,
        "parameters": parameters,
    }
    return ClientSettings(**{**fields, **changes})


def start(kind: str, role: str, its: ClientSettings, tmp_path: Path) -> ClientProcess:
    client = ClientProcess(kind, role, its, tmp_path / "clients" / f"{its.client}.log")
    client.wait_ready(20)
    return client
