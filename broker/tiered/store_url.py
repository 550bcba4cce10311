"""The object store that a broker's configuration names."""

from __future__ import annotations

import importlib.util

from broker.config import BrokerConfig
from broker.errors import StartupError
from broker.tiered.directory_store import DirectoryStore
from broker.tiered.object_store import ObjectStore
from broker.tiered.s3_store import S3Store, read_credentials


def store_of(config: BrokerConfig) -> ObjectStore:
    """The store of `rsm.config.url`. It need not be reachable now. Raises `StartupError` for an unusable setting."""
    scheme, separator, place = config.rsm_config_url.partition("://")
    if separator and scheme == "file" and place.startswith("/"):
        return DirectoryStore(place)
    if separator and scheme == "s3" and place.partition("/")[0]:
        return _s3(config, *place.split("/", 1))
    raise StartupError(
        f"{config.source}: rsm.config.url: {config.rsm_config_url!r} is neither file:///directory nor s3://bucket/prefix"
    )


def _s3(config: BrokerConfig, bucket: str, prefix: str = "") -> ObjectStore:
    if importlib.util.find_spec("obstore") is None:
        raise StartupError(
            f"{config.source}: rsm.config.url: S3 needs the package obstore; install the extra [s3], or use a directory"
        )
    path = config.rsm_config_credentials_file
    return S3Store(
        bucket,
        prefix.strip("/"),
        endpoint=config.rsm_config_endpoint,
        region=config.rsm_config_region,
        credentials=None if path is None else read_credentials(path, config.source),
    )
