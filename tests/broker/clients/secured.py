"""Brokers with TLS and SASL as processes on loopback: certificates, users, and the settings of clients."""

import datetime
import ipaddress
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.broker.clients.harness import Cluster

BROKER, BROKERS_PASSWORD = "broker", "Between-brokers-9f3a"
ADMIN, ADMINS_PASSWORD = "admin", "For-the-admin-77c1"
PATIENT = {
    "broker.session.timeout.ms": 20_000,
    "broker.lease.ms": 15_000,
    "quorum.fetch.timeout.ms": 10_000,
    "quorum.request.timeout.ms": 10_000,
}
"""Timeouts above the time of a test: a slow machine must not make a broker appear dead."""
_VALID = datetime.timedelta(days=2)


class Authority:
    """A certificate authority of a test; what it signs is valid for 127.0.0.1."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a test")])
        self.certificates = directory / "authority.pem"
        certificate = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), True)
        self.certificates.write_bytes(_pem(certificate.sign(self._key, hashes.SHA256())))

    def issue(self, name: str, organization: str = "Test") -> Path:
        """A file with a new key and its certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            self._builder(x509.Name(parts), key)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
            .add_extension(x509.ExtendedKeyUsage(uses), False)
        )
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self._directory / f"{name}.pem"
        write_private(path, (secret + _pem(certificate.sign(self._key, hashes.SHA256()))).decode())
        return path

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _VALID)
            .not_valid_after(now + _VALID)
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def write_private(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


@dataclass(frozen=True)
class Secured:
    """A cluster whose brokers speak to everybody, and to each other, by TLS and SASL."""

    cluster: Cluster
    authority: Authority

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def librdkafka(self, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
        """What confluent-kafka's clients need."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.certificates),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }


def settings(directory: Path, authority: Authority, **others: object) -> dict[str, object]:
    """A node's keys for SASL_SSL everywhere."""
    users = f"# the brokers' own user, and one to start with\n{BROKER}={BROKERS_PASSWORD}\n{ADMIN}={ADMINS_PASSWORD}\n"
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL",
        "ssl.keystore.location": authority.issue("broker"),
        "ssl.truststore.location": authority.certificates,
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
        "sasl.users.file": write_private(directory / "users", users),
        "sasl.inter.broker.credentials.file": write_private(directory / "own", f"{BROKER}={BROKERS_PASSWORD}\n"),
        **PATIENT,
        **others,
    }


@contextmanager
def secured(directory: Path, size: int = 1, others: Mapping[str, object] | None = None) -> Iterator[Secured]:
    """Running brokers; `others` are keys besides."""
    directory.mkdir(parents=True, exist_ok=True)
    authority = Authority(directory / "certificates")
    nodes = Cluster(directory, size, settings(directory, authority, **(others or {})))
    try:
        nodes.start()
        yield Secured(nodes, authority)
    finally:
        nodes.stop()
