"""Principals: the names of authenticated peers, in Kafka's form, `User:` and a name."""

from collections.abc import Sequence
from typing import Final

from broker.errors import StartupError
from broker.properties import shown

USER: Final = "User:"
ANONYMOUS: Final = "User:ANONYMOUS"
"""A peer that has not authenticated."""
ANYBODY: Final = "User:*"
"""In an access control list: matches every principal."""

_ABBREVIATIONS = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_SPECIAL = frozenset(',+"\\<>;')


def of_user(name: str) -> str:
    """The principal of a user that SASL has authenticated."""
    return USER + name


def of_certificate(subject: Sequence[Sequence[tuple[str, str]]]) -> str:
    """The principal of a client's certificate: its distinguished name by RFC 2253, which writes the last part first.

    `subject` is as `ssl.SSLSocket.getpeercert` gives it.
    """
    parts = [
        "+".join(f"{_ABBREVIATIONS.get(key, key)}={_escaped(value)}" for key, value in attributes)
        for attributes in subject
    ]
    return USER + ",".join(reversed(parts))


def parse_super_users(text: str, source: str) -> frozenset[str]:
    """Parse `User:admin;User:CN=broker,O=house`; `;` separates, because names contain commas. Raises `StartupError`."""
    principals = [principal.strip() for principal in text.split(";") if principal.strip()]
    for principal in principals:
        if not principal.startswith(USER) or principal in (USER, ANYBODY):
            raise StartupError(
                f"{source}: super.users: {shown(principal)} is not of the form User:name; separate them by ;"
            )
    return frozenset(principals)


def _escaped(value: str) -> str:
    text = "".join("\\" + char if char in _SPECIAL else char for char in value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    return text[:-1] + "\\ " if len(text) > 1 and text.endswith(" ") and not text.endswith("\\ ") else text
