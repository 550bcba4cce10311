"""etcd's client: the outcome for each answer, and for each missing answer."""

import base64
import http.client
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from history.record.values import NOT_A_VALUE
from systems.etcd.client import EtcdClient
from systems.etcd.gateway import Gateway, GatewayError, encoded
from tests.systems.fake_etcd import CLOSED, SILENT, FakeEtcd, Wrong, error
from workloads.api import Refused

CHANGES: dict[str, Callable[[EtcdClient], object]] = {
    "write": lambda client: client.write("k", 2),
    "compare and set": lambda client: client.compare_and_set("k", 1, 2),
}


@pytest.fixture
def etcd() -> Iterator[FakeEtcd]:
    fake = FakeEtcd()
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def dead() -> str:
    """An endpoint without a listener."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def client(*endpoints: str, timeout_s: float = 5.0, **options: str) -> EtcdClient:
    return EtcdClient(endpoints, timeout_s, options)


def test_a_key_is_a_register(etcd: FakeEtcd) -> None:
    mine = client(etcd.endpoint)
    assert mine.read("k") is None
    assert mine.compare_and_set("k", None, 1)
    assert not mine.compare_and_set("k", None, 5)
    mine.write("k", 2)
    assert mine.read("k") == 2
    assert not mine.compare_and_set("k", 1, 3)
    assert mine.compare_and_set("k", 2, -(1 << 63))
    assert (mine.read("k"), mine.read("other")) == (-(1 << 63), None)
    mine.close()


def test_the_client_names_the_member_that_answers(etcd: FakeEtcd, dead: str) -> None:
    assert client(dead, etcd.endpoint).endpoint == etcd.endpoint


@pytest.mark.parametrize(
    "content", [b"", b"x", b"7 ", b"+7", b"07", b"1_0", "\u0667".encode(), b"\xff\x00", b"9" * 5000]
)
def test_a_foreign_value_is_recorded_as_not_a_value(etcd: FakeEtcd, content: bytes) -> None:
    mine = client(etcd.endpoint)
    mine.write("k", 7)
    etcd.values[encoded("k")] = base64.b64encode(content).decode()
    assert mine.read("k") == NOT_A_VALUE
    assert not mine.compare_and_set("k", 7, 8)


def test_reads_follow_the_consistency_option(etcd: FakeEtcd) -> None:
    for reads, asked in (("linearizable", {}), ("serializable", {"serializable": True})):
        etcd.asked.clear()
        client(etcd.endpoint, reads=reads).read("k")
        assert [{**request, "key": ""} for _, request in etcd.asked] == [{"key": "", **asked}] * 2


@pytest.mark.parametrize("options", [{"reads": "eventual"}, {"read": "serializable"}])
def test_an_unknown_option_is_a_mistake(etcd: FakeEtcd, options: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="reads = one of linearizable, serializable"):
        EtcdClient([etcd.endpoint], 5.0, options)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "text",
    [
        "etcdserver: too many requests",
        "etcdserver: request is too large",
        "raft proposal dropped",
    ],
)
def test_an_error_without_effect_is_recorded_as_refused(etcd: FakeEtcd, change: str, text: str) -> None:
    mine = client(etcd.endpoint)
    etcd.coming.append(error(503, text))
    with pytest.raises(Refused, match=text):
        CHANGES[change](mine)
    assert etcd.values == {}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("wrong", "raised"),
    [
        (error(503, "etcdserver: request timed out"), GatewayError),
        (error(503, "etcdserver: request timed out, possibly due to previous leader failure"), GatewayError),
        (error(503, "etcdserver: leader changed"), GatewayError),
        (error(503, "etcdserver: no leader"), GatewayError),
        (error(429, "etcdserver: mvcc: database space exceeded"), GatewayError),
        (Wrong(502, "<html>bad gateway</html>"), GatewayError),
        (Wrong(200, "{"), ValueError),
        (Wrong(200, "[]"), ValueError),
        (CLOSED, (http.client.HTTPException, OSError)),
        (Wrong(0, applied=True), (http.client.HTTPException, OSError)),
    ],
)
def test_any_other_end_of_a_change_is_an_unknown_outcome(
    etcd: FakeEtcd, change: str, wrong: Wrong, raised: type[Exception]
) -> None:
    mine = client(etcd.endpoint)
    etcd.coming.append(wrong)
    with pytest.raises(raised):
        CHANGES[change](mine)


def test_a_change_without_an_answer_in_its_time_stays_open(etcd: FakeEtcd) -> None:
    mine = client(etcd.endpoint, timeout_s=0.5)
    etcd.coming.append(SILENT)
    with pytest.raises(TimeoutError):
        mine.write("k", 1)


def test_errors_have_the_message_of_etcd(etcd: FakeEtcd) -> None:
    mine = client(etcd.endpoint)
    for wrong, complaint in (
        (error(503, "etcdserver: leader changed"), r"etcdserver: leader changed \(HTTP 503\)"),
        (Wrong(500, "no JSON"), r"no JSON \(HTTP 500\)"),
        (Wrong(500, ""), r"an error without a message \(HTTP 500\)"),
    ):
        etcd.coming.append(wrong)
        with pytest.raises(GatewayError, match=complaint):
            mine.read("k")


def test_a_refused_connection_counts_as_not_sent(etcd: FakeEtcd) -> None:
    mine = client(etcd.endpoint)
    etcd.coming.append(CLOSED)
    with pytest.raises((http.client.HTTPException, OSError)):
        mine.write("k", 1)
    mine.close()
    etcd.stop()
    with pytest.raises(Refused, match="does not accept a connection"):
        mine.write("k", 2)


def test_a_connection_closed_between_requests_is_reopened(etcd: FakeEtcd) -> None:
    mine = client(etcd.endpoint)
    etcd.coming.append(Wrong(200, "{}", applied=True, closes="announced"))
    mine.write("k", 1)
    mine.write("k", 2)
    assert mine.read("k") == 2


def test_a_silently_closed_connection_is_detected(etcd: FakeEtcd) -> None:
    gateway = Gateway(etcd.address, etcd.port, 5.0)
    etcd.coming.append(Wrong(200, "{}", closes="abrupt"))
    assert gateway.is_open
    assert gateway.ask("/v3/kv/put", {}, 5.0) == {}
    give_up = time.monotonic() + 60
    while gateway.is_open:
        assert time.monotonic() < give_up
    gateway.close()
    assert not gateway.is_open


def test_a_member_that_takes_no_connection_is_passed_over(etcd: FakeEtcd, dead: str) -> None:
    mine = client(dead, etcd.endpoint)
    mine.write("k", 1)
    assert mine.read("k") == 1


def test_a_member_that_does_not_answer_the_first_read_is_skipped(etcd: FakeEtcd) -> None:
    cut_off = FakeEtcd()
    cut_off.start()
    cut_off.coming.append(error(503, "etcdserver: request timed out"))
    mine = client(cut_off.endpoint, etcd.endpoint)
    mine.write("k", 1)
    assert (len(etcd.values), len(cut_off.values)) == (1, 0)
    cut_off.stop()


def test_without_an_answering_member_the_client_fails_to_open(etcd: FakeEtcd, dead: str) -> None:
    etcd.coming.append(error(503, "etcdserver: request timed out"))
    etcd.coming.append(error(503, "etcdserver: request timed out"))
    with pytest.raises(OSError, match=r"no member answers a read: .*request timed out"):
        client(etcd.endpoint, dead)
