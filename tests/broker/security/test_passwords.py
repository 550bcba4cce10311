"""Passwords in files, and outputs without them."""

from dataclasses import fields
from pathlib import Path

import pytest

from broker.config import BrokerConfig
from broker.errors import StartupError
from broker.protocol.messages.credential_apis import (
    AlterUserScramCredentialsRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    ScramCredentialUpsertion,
)
from broker.protocol.messages.metadata_records import UserScramCredentialRecord
from broker.security.passwords import Password, read_passwords
from broker.security.scram import ScramMechanism, credential_of
from tests.broker.clients.secured import write_private

pytestmark = pytest.mark.conforms("SEC-6")
SECRET = "correct-horse"


def test_a_file_of_users(tmp_path: Path) -> None:
    path = write_private(tmp_path / "users", f"# users\n\nalice={SECRET}\n bob = with spaces =\n")
    users = read_passwords(str(path), "sasl.users.file", "p")
    assert users["alice"].is_(SECRET)
    assert users["bob"].is_(" with spaces =")
    assert not users["alice"].is_("")
    assert SECRET not in repr(users)


@pytest.mark.parametrize("line", [f"alice:{SECRET}", f"={SECRET}", f"alice={SECRET}\nalice={SECRET}", "alice="])
def test_a_line_that_is_wrong_is_named_by_its_number(tmp_path: Path, line: str) -> None:
    path = write_private(tmp_path / "users", line + "\n")
    with pytest.raises(StartupError, match=r"line [12]") as refused:
        read_passwords(str(path), "sasl.users.file", "p")
    assert SECRET not in str(refused.value)
    assert "sasl.users.file" in str(refused.value)


def test_a_world_readable_file_is_refused(tmp_path: Path) -> None:
    path = write_private(tmp_path / "users", f"alice={SECRET}\n")
    path.chmod(0o644)
    with pytest.raises(StartupError, match=f"chmod 600 {path}"):
        read_passwords(str(path), "sasl.users.file", "p")
    with pytest.raises(StartupError, match="cannot be read"):
        read_passwords(str(tmp_path / "none"), "sasl.users.file", "p")
    path.chmod(0o600)
    path.write_bytes(b"alice=\xff\n")
    with pytest.raises(StartupError, match="UTF-8"):
        read_passwords(str(path), "sasl.users.file", "p")


@pytest.mark.parametrize(
    "holder",
    [
        Password(SECRET),
        SaslAuthenticateRequest(SECRET.encode()),
        SaslAuthenticateResponse(auth_bytes=SECRET.encode()),
        ScramCredentialUpsertion("alice", 1, 4096, b"salt", SECRET.encode()),
        AlterUserScramCredentialsRequest(upsertions=[ScramCredentialUpsertion("alice", 1, 1, b"s", SECRET.encode())]),
        UserScramCredentialRecord("alice", 1, b"salt", SECRET.encode(), SECRET.encode(), 4096),
        credential_of(SECRET.encode(), SECRET.encode(), 4096, ScramMechanism.SHA_256),
    ],
    ids=lambda holder: type(holder).__name__,
)
def test_objects_with_a_credential_do_not_print_it(holder: object) -> None:
    for text in (repr(holder), str(holder), f"{holder}", repr([holder]), repr({"key": holder})):
        assert SECRET not in text
        assert SECRET.encode().hex() not in text


def test_a_password_given_as_a_value_is_refused_and_not_quoted() -> None:
    """Values of keys are in plans, in reports, in answers to DescribeConfigs, and in `repr`."""
    keys = {each.metadata["key"] for each in fields(BrokerConfig) if "key" in each.metadata}
    suspects = {key for key in keys if "password" in key or "secret" in key or "credential" in key or "jaas" in key}
    assert suspects == {"sasl.inter.broker.credentials.file", "rsm.config.credentials.file"}  # names of files
    given = {"node.id": "1", "listeners": "n:1", "quorum.voters": "1@n:1", "log.dir": "l"}
    for key in ("ssl.key.password", "sasl.jaas.config", "ssl.keystore.password"):
        with pytest.raises(StartupError, match=f"unknown key '{key}'") as refused:
            BrokerConfig.from_properties({**given, key: SECRET})
        assert SECRET not in str(refused.value)
