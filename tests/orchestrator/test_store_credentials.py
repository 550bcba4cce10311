"""Credentials of an object store are in no file and no output of a campaign."""

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.checkers.remote_store import ELSEWHERE
from orchestrator.command.line import main
from orchestrator.errors import EXIT_USAGE
from tests.broker.tiered.s3_service import (
    KEY_ID,
    SECRET,
    require_keys,
    s3_service,
    traces_of_credentials,
    write_credentials,
)

CAMPAIGN = """
name = "in-s3"
[topology]
nodes = 1
world = "process"
[broker]
"remote.log.storage.system.enable" = "true"
"rsm.config.url" = "{url}"
"rsm.config.endpoint" = "{endpoint}"
"rsm.config.credentials.file" = "{credentials}"
"rlmm.config.remote.log.metadata.topic.replication.factor" = 1
"remote.log.manager.task.interval.ms" = 100
"log.retention.check.interval.ms" = 100
[workload]
partitions = 1
replication_factor = 1
topic_settings = {{ "remote.storage.enable" = "true", "segment.bytes" = 4096, "local.retention.bytes" = 1 }}
producers = 1
consumers = 1
record_bytes = 1000
rate = 60
duration_s = 4
[checks]
min_ok = 5
"""


def write_campaign(directory: Path, endpoint: str, url: str = "s3://bucket/prefix") -> Path:
    """A campaign whose object store is a service with S3's interface."""
    credentials, path = directory / "credentials", directory / "in-s3.toml"
    write_credentials(credentials)
    path.write_text(CAMPAIGN.format(endpoint=endpoint, credentials=credentials, url=url))
    return path


def run(campaign: Path, *options: str) -> tuple[int, str]:
    """The exit code of `brownout run`, and its output."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        code = main(
            ["run", str(campaign), "--store", str(campaign.parent / "store"), "--engine", "in-process", *options]
        )
    return code, shown.getvalue()


def contents(store: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of the store; tables as texts, because their columns are compressed."""
    for path in sorted(each for each in store.rglob("*") if each.is_file() and not each.is_symlink()):
        yield path.name, path.name.encode() + b"\n" + path.read_bytes()
        if path.suffix == ".parquet":
            table: pa.Table = pq.read_table(path)
            yield path.name, str(table.to_pylist()).encode()


@pytest.mark.rotating(3, among="brokers with tiered storage")
@pytest.mark.parametrize("refused", [False, True])
def test_no_file_of_a_run_has_them(tmp_path: Path, refused: bool) -> None:
    """`refused`: the service answers each request with an error that contains the key's id."""
    with s3_service() as endpoint:
        if refused:
            require_keys(endpoint, after=0)
        _, shown = run(write_campaign(tmp_path, endpoint))
    found = dict(contents(tmp_path / "store"))
    assert {"run.toml", "journal.jsonl", "verdict.json", "report.html", "events.jsonl"} <= found.keys()
    events = b"".join(content for name, content in contents(tmp_path / "store") if name == "events.jsonl")
    assert (b'"remote_storage_failed"' in events) == refused, "the brokers used the service"
    assert (b'"COPY_FINISHED"' in events) != refused
    assert not traces_of_credentials(shown.encode())
    leaks = {name for name, content in contents(tmp_path / "store") if traces_of_credentials(content)}
    assert not leaks
    verdict = json.loads(found["verdict.json"].partition(b"\n")[2])
    assert not verdict["anomalies"], "the run does not contain the objects: no evidence shows that one is missing"
    assert verdict["verdict"] == "unknown"
    assert any(ELSEWHERE in reason for reason in verdict["reasons"])


@pytest.mark.parametrize("dry", [("--dry-run",), ()])
@pytest.mark.parametrize("url", [f"s3://{KEY_ID}:{SECRET}@bucket", f"s3://bucket/x?key={KEY_ID}&secret={SECRET}"])
def test_credentials_in_an_address_are_refused_before_they_are_written(
    tmp_path: Path, url: str, dry: tuple[str, ...]
) -> None:
    code, shown = run(write_campaign(tmp_path, "http://127.0.0.1:1", url), *dry)
    assert code == EXIT_USAGE
    assert "rsm.config.url" in shown
    assert not traces_of_credentials(shown.encode())
    assert not list((tmp_path / "store").rglob("*"))
