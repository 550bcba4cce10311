"""A broker that authenticates clients names its listeners without authentication."""

import subprocess
import sys
from pathlib import Path

import pytest

from broker.config import BrokerConfig
from broker.server.config_warnings import open_listeners

BASE = {
    "node.id": "1",
    "listeners": "CLIENTS://n1:9092,CONTROLLER://n1:9093",
    "controller.listener.names": "CONTROLLER",
    "quorum.voters": "1@n1:9093",
    "log.dir": "/data",
}


@pytest.mark.parametrize(
    ("clients", "controllers", "more", "warned"),
    [
        ("SASL_PLAINTEXT", "PLAINTEXT", {}, ["CONTROLLER"]),
        ("SASL_SSL", "PLAINTEXT", {}, ["CONTROLLER"]),
        ("SASL_SSL", "SSL", {}, ["CONTROLLER"]),
        ("SASL_SSL", "SSL", {"ssl.client.auth": "required"}, []),
        ("SASL_SSL", "SASL_SSL", {}, []),
        ("PLAINTEXT", "SASL_SSL", {}, ["CLIENTS"]),
        ("PLAINTEXT", "PLAINTEXT", {}, []),
        ("SSL", "PLAINTEXT", {"ssl.client.auth": "required"}, ["CONTROLLER"]),
        ("PLAINTEXT", "PLAINTEXT", {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
         ["CLIENTS", "CONTROLLER"]),
    ],
)  # fmt: skip
def test_a_listener_without_authentication_is_named(
    clients: str, controllers: str, more: dict[str, str], warned: list[str]
) -> None:
    protocols = {"listener.security.protocol.map": f"CLIENTS:{clients},CONTROLLER:{controllers}"}
    config = BrokerConfig.from_properties({**BASE, **protocols, **more}, "n1.properties")
    found = open_listeners(config)
    assert [line.split("listener ")[1].split(" ")[0] for line in found] == warned
    for line in found:
        assert line.startswith("n1.properties: ")
        assert "listener.security.protocol.map" in line
        assert ("serves controllers" in line) == ("listener CONTROLLER" in line)


def test_the_broker_names_open_listeners_at_its_start(tmp_path: Path) -> None:
    """It ends then, since its host is unknown: only its messages before count."""
    properties = {
        **BASE,
        "listeners": "CLIENTS://nowhere.invalid:9092,CONTROLLER://nowhere.invalid:9093",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dir": str(tmp_path / "log"),
    }
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    done = subprocess.run(
        [sys.executable, "-m", "broker", "--config", str(file)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "listener CONTROLLER" in done.stdout, done.stdout + done.stderr
