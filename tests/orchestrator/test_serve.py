"""`brownout serve`: the store's pages over HTTP, and the invocation that is under way."""

import contextlib
import fcntl
import http.client
import json
import os
import shutil
import signal
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.serving.server import Live, RunLook, is_loopback
from orchestrator.store.directories import RunDirectory
from tests.orchestrator.served_store import Server, served
from tests.orchestrator.stored_campaign import StoredCampaign, ask


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> StoredCampaign:
    made = StoredCampaign(tmp_path_factory.mktemp("serve") / "store")
    made.made()
    assert ask("gate", made.path).code == 0
    return made


@pytest.fixture(scope="module")
def server(campaign: StoredCampaign) -> Iterator[Server]:
    with served(campaign.store) as made:
        yield made


def test_the_root_is_the_index_and_reports_are_below_it(server: Server, campaign: StoredCampaign) -> None:
    index = server.get("/")
    assert index.code == 200
    assert campaign.path.name in index.text
    report = server.get(f"/{campaign.path.name}/report.html")
    assert report.code == 200
    assert report.text == (campaign.path / "report.html").read_text()
    assert "default-src 'none'" in report.headers["Content-Security-Policy"]


def test_serving_leaves_the_store_unchanged(tmp_path: Path) -> None:
    (tmp_path / "index.html").mkdir()  # as in a store that cannot be written
    with served(tmp_path) as made:
        assert made.get("/").code == 200
    assert [path.name for path in tmp_path.rglob("*")] == ["index.html"]


@pytest.mark.parametrize(
    "path",
    [
        "/../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/leak",
        "/leaks/secret",
        "/absent",
        "/story",
        "//etc/passwd",
        "/%00",
        f"/{'a' * 5000}",
    ],
)
def test_only_files_of_the_store_are_served(server: Server, campaign: StoredCampaign, path: str) -> None:
    secret = campaign.store.parent / "secret"
    secret.write_text("secret")
    for name, target in (("leak", secret), ("leaks", secret.parent)):
        with contextlib.suppress(FileExistsError):
            (campaign.store / name).symlink_to(target)
    answer = server.get(path)
    assert answer.code in (403, 404)
    assert answer.text != "secret"


def test_another_name_of_this_machine_is_refused(server: Server) -> None:
    assert server.get("/", Host="evil.example").code == 403


def test_without_loopback_every_request_needs_the_token(campaign: StoredCampaign) -> None:
    with served(campaign.store, "--address", "0.0.0.0") as open_server:
        token = open_server.address.split("token=")[1]
        for path in ("/", "/live", "/live.json", f"/{campaign.path.name}/report.html"):
            assert open_server.get(path).code == 403
            assert open_server.get(f"{path}?token={token[:-1]}x").code == 403
            cookie = f"brownout_token={token}"
            assert open_server.get(path, Cookie=cookie).code == 200
        jar = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with jar.open(open_server.address, timeout=20) as answer:
            assert answer.status == 200
            assert "token" not in answer.url, "the browser's history does not keep it"


def test_the_ipv6_loopback_answers(campaign: StoredCampaign) -> None:
    with served(campaign.store, "--address", "::1") as ipv6:
        assert ipv6.get("/").code == 200
        assert ipv6.get("/", Host="[2001:db8::1]").code == 403


def test_a_request_that_fails_does_not_log_its_token(campaign: StoredCampaign) -> None:
    with served(campaign.store, "--address", "0.0.0.0") as open_server:
        token = open_server.address.split("token=")[1]
        for path in (f"/?token={token}&token=%ff", f"/%00?token={token}", f"/?token={token[:-1]}"):
            assert open_server.get(path).code in (400, 403, 404)
        open_server.process.send_signal(signal.SIGINT)
        assert open_server.process.stdout is not None
        printed = open_server.process.stdout.read()
        assert token[:-1] not in "".join(printed.splitlines(keepends=True)[1:])
        assert "Traceback" not in printed


def test_the_redirect_with_the_token_stays_on_this_host(campaign: StoredCampaign) -> None:
    with served(campaign.store, "--address", "0.0.0.0") as open_server:
        token = open_server.address.split("token=")[1]
        host, port = open_server.base.removeprefix("http://").split(":")
        for path in ("//evil.example/", "/%5cevil.example/", "/live"):
            connection = http.client.HTTPConnection(host, int(port), timeout=20)
            connection.request("GET", f"{path}?token={token}")
            answer = connection.getresponse()
            assert answer.status == 302
            place = answer.headers["Location"]
            assert urllib.parse.urlsplit(place).netloc == ""
            assert token not in place


def test_a_file_that_changed_is_served_again(server: Server, campaign: StoredCampaign) -> None:
    path = campaign.path / "notes.txt"
    path.write_text("first")
    tag = server.get(f"/{campaign.path.name}/notes.txt").headers["ETag"]
    assert server.get(f"/{campaign.path.name}/notes.txt", **{"If-None-Match": tag}).code == 304
    path.write_text("second")
    assert server.get(f"/{campaign.path.name}/notes.txt", **{"If-None-Match": tag}).text == "second"


@pytest.mark.parametrize("name", ["nodes/n1/report.html", "nodes/n1/image.svg", "other.html"])
def test_a_page_among_the_evidence_runs_no_script(server: Server, campaign: StoredCampaign, name: str) -> None:
    path = next(campaign.path.glob("*/run.toml")).parent / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("<script>fetch('/')</script>")
    policy = server.get(f"/{path.relative_to(campaign.store)}").headers["Content-Security-Policy"]
    assert policy.startswith("sandbox;")
    assert "script-src" not in policy


@pytest.mark.parametrize("path", ["/", "/live", "/live.json"])
def test_head_has_the_headers_of_get(server: Server, path: str) -> None:
    request = urllib.request.Request(f"{server.base}{path}", method="HEAD")
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert (answer.status, answer.read()) == (200, b"")
        assert answer.headers["Content-Type"] == server.get(path).headers["Content-Type"]


@pytest.mark.parametrize("address", ["", "x..y", "a" * 70])
def test_an_invalid_address_is_wrong_usage(tmp_path: Path, address: str) -> None:
    refused = ask("serve", "--store", tmp_path, "--address", address)
    assert refused.code == 64
    assert "address" in refused.err
    assert "Traceback" not in refused.err


def test_a_store_that_is_missing_and_an_address_that_is_taken_are_wrong_usage(server: Server, tmp_path: Path) -> None:
    missing = ask("serve", "--store", tmp_path / "absent")
    assert (missing.code, "give the directory of runs with --store" in missing.err) == (64, True)
    taken = ask("serve", "--store", tmp_path, "--port", server.base.rsplit(":", 1)[1])
    assert (taken.code, "give another --port or --address" in taken.err) == (64, True)
    assert ask("serve", "--port", "65536").code == 64


def test_ctrl_c_ends_the_server_in_order(campaign: StoredCampaign) -> None:
    with served(campaign.store) as ended:
        ended.process.send_signal(signal.SIGINT)
        assert ended.process.wait(20) == 0


@pytest.mark.parametrize(
    ("address", "local"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("10.1.2.3", False), ("host", False)],
)
def test_addresses_of_this_machine_only(address: str, *, local: bool) -> None:
    assert is_loopback(address) is local


@contextlib.contextmanager
def under_way(run: Path) -> Iterator[None]:
    """The run as it is before its verdict: its process lives."""
    (run / "verdict.json").unlink()
    descriptor = os.open(run / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


@pytest.fixture
def copy(campaign: StoredCampaign, tmp_path: Path) -> StoredCampaign:
    shutil.copytree(campaign.store, tmp_path / "store", symlinks=True)
    return StoredCampaign(tmp_path / "store", campaign.text, list(campaign.plans))


def test_the_run_that_is_under_way_is_shown_with_its_operations_and_faults(copy: StoredCampaign) -> None:
    first, second = sorted(path.parent for path in copy.path.glob("*/run.toml"))
    with under_way(second):
        (seen,) = Live(copy.store).look()
    assert [(row.run, row.verdict, row.met) for row in seen.matrix] == [
        (first.name, "pass", True),
        (second.name, "running", False),
    ]
    assert seen.running is not None
    assert seen.running.total == sum(seen.running.acknowledged) > 0
    assert len(seen.running.acknowledged) == len(seen.running.latency_ms) == seen.running.seconds
    assert [fault.kind for fault in seen.running.faults] == ["kill"]
    json.dumps(seen.to_json())


def test_looking_does_not_take_the_runs_lock(copy: StoredCampaign) -> None:
    run = RunDirectory(sorted(path.parent for path in copy.path.glob("*/run.toml"))[0])
    assert not run.is_held()
    with run.held():
        assert run.is_held()
    assert not run.is_held()


def test_a_run_that_ended_without_verdict_is_not_called_running(copy: StoredCampaign) -> None:
    run = sorted(path.parent for path in copy.path.glob("*/run.toml"))[0]
    (run / "verdict.json").unlink()
    (seen,) = Live(copy.store).look()
    assert ([row.verdict for row in seen.matrix], seen.running) == (["no verdict", "pass"], None)


def test_a_run_without_record_or_with_a_damaged_one_is_starting(tmp_path: Path) -> None:
    assert RunLook(tmp_path).look().phase == "starting"
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "journal.jsonl").write_bytes(b"\xff\n{")
    assert (RunLook(tmp_path).look().total, RunLook(tmp_path).look().phase) == (0, "starting")


def test_lines_of_logs_have_no_control_characters(tmp_path: Path) -> None:
    node = tmp_path / "nodes" / "n1"
    node.mkdir(parents=True)
    (node / "service.log").write_bytes(b"old\n\x1b[31mred\x00\n")
    assert [line for _, line in RunLook(tmp_path).look().lines] == ["old", r"\x1b[31mred\x00"]
    os.mkfifo(tmp_path / "nodes" / "pipe")
    assert len(RunLook(tmp_path).look().lines) == 2
