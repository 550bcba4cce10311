"""TLS contexts of listeners and of connections to other brokers, loaded from PEM files."""

import ssl
from collections.abc import Callable

from broker.config import BrokerConfig
from broker.errors import StartupError
from broker.security.passwords import require_private

HANDSHAKE_TIMEOUT_S = 5.0
SHUTDOWN_TIMEOUT_S = 1.0
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(config: BrokerConfig, source: str) -> ssl.SSLContext:
    """The context of listeners. Raises `StartupError`, which names the key and the file."""
    if config.ssl_keystore_location is None:
        raise StartupError(
            f"{source}: ssl.keystore.location is missing: a listener with TLS needs a key and its certificates; name a "
            "PEM file that contains both"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_key(context, config.ssl_keystore_location, source)
    context.verify_mode = _CLIENT_AUTH[config.ssl_client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _load_trusted(context, config.ssl_truststore_location, source)
    return context


def client_context(config: BrokerConfig, source: str) -> ssl.SSLContext:
    """The context of connections to other brokers, which verifies them and presents this broker's certificate. Raises
    `StartupError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = config.ssl_endpoint_identification_algorithm == "https"
    if config.ssl_keystore_location is not None:
        _load_key(context, config.ssl_keystore_location, source)
    _load_trusted(context, config.ssl_truststore_location, source)
    return context


def _load_key(context: ssl.SSLContext, path: str, source: str) -> None:
    key = "ssl.keystore.location"
    require_private(path, key, source)
    content = "a key without a password, and its certificates"
    _load(lambda: context.load_cert_chain(path, password=""), path, key, content)


def _load_trusted(context: ssl.SSLContext, path: str | None, source: str) -> None:
    key = "ssl.truststore.location"
    if path is None:
        raise StartupError(f"{source}: {key} is missing: name a PEM file with the trusted certificates")
    _load(lambda: context.load_verify_locations(path), path, key, "certificates that are trusted")


def _load(load: Callable[[], None], path: str, key: str, content: str) -> None:
    try:
        load()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = "the file does not contain that"
        if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
            reason = str(error.strerror)
        raise StartupError(f"{key}: {path}: {reason}; name a PEM file with {content}") from None
