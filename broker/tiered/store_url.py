"""The object store that a broker's configuration names."""

from __future__ import annotations

from broker.config import BrokerConfig
from broker.errors import StartupError
from broker.tiered.directory_store import DirectoryStore
from broker.tiered.object_store import ObjectStore


def store_of(config: BrokerConfig) -> ObjectStore:
    """The store of `rsm.config.url`. It need not be reachable now. Raises `StartupError` for an unusable setting."""
    scheme, separator, place = config.rsm_config_url.partition("://")
    if separator and scheme == "file" and place.startswith("/"):
        return DirectoryStore(place)
    raise StartupError(
        f"{config.source}: rsm.config.url: {config.rsm_config_url!r} is neither file:///directory nor s3://bucket/prefix"
    )
