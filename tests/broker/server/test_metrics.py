"""The page at /metrics: its contents, and its answers to other requests."""

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest

from broker.server.metrics import MOST_AT_ONCE, MOST_BYTES, Metric, MetricsPage, metrics_of, render
from simulator.cluster import SimulatedCluster
from tests.broker.clients.harness import free_ports
from tests.simulator.stories import in_cluster, started
from tests.stories import played_by

K595_52 = {
    "raft_current_leader", "raft_current_epoch", "raft_current_vote", "raft_log_end_offset", "raft_log_end_epoch",
    "raft_high_watermark", "raft_current_state", "raft_number_unknown_voter_connections", "raft_election_latency_avg",
    "raft_election_latency_max", "raft_commit_latency_avg", "raft_commit_latency_max", "raft_fetch_records_rate",
    "raft_append_records_rate", "raft_poll_idle_ratio_avg",
}  # fmt: skip


def numbers(page: str) -> dict[str, float]:
    """The samples of a page; every line must be a comment or a sample, every name described once."""
    result = {}
    described = re.findall(r"^# TYPE (\S+) (?:gauge|counter)$", page, re.MULTILINE)
    assert len(set(described)) == len(described)
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        found = re.fullmatch(r'(([a-z_0-9]+)(?:\{[a-z_]+="[^"]*"\})?) (\S+)', line)
        assert found, line
        assert found[2] in described
        result[found[1]] = float(found[3])
    return result


@pytest.mark.conforms("K595-52")
@in_cluster(1, properties={"min.insync.replicas": "2"})
async def test_every_node_has_metrics_of_the_quorum_and_its_replicas(cluster: SimulatedCluster, /) -> None:
    client = await started(cluster)
    await client.create_topic("t", 3)
    pages = {name: numbers(render(metrics_of(cluster.node(name), cluster.loop.time()))) for name in cluster.machines}
    leader = cluster.controller()
    assert leader is not None
    for name, page in pages.items():
        node = cluster.node(name)
        assert {key.split("{")[0] for key in page} >= K595_52
        assert f"n{page['raft_current_leader']:.0f}" == leader
        assert page["raft_current_epoch"] == node.quorum.epoch > 0
        assert page["raft_high_watermark"] == node.quorum.high_watermark > 0
        assert page["raft_log_end_offset"] >= page["raft_high_watermark"]
        assert page['raft_current_state{state="leader"}'] == (name == leader)
        assert page['raft_current_state{state="follower"}'] == (name != leader)
        assert page["raft_poll_idle_ratio_avg"] > 0
        assert (page["raft_append_records_rate"] > 0) == (name == leader)
        assert (page["raft_fetch_records_rate"] > 0) == (name != leader)
        assert page["broker_partitions"] == 3
        assert page["broker_fenced"] == 0
        assert page['cluster_brokers{state="active"}'] == 3
    assert sum(page["broker_leaders"] for page in pages.values()) == 3
    assert pages[leader]["raft_election_latency_max"] > 0
    assert pages[leader]["raft_commit_latency_max"] > 0
    assert pages[leader]["raft_current_vote"] == pages[leader]["raft_current_leader"]
    cluster.kill("n1" if leader != "n1" else "n2")
    await cluster.until(
        lambda: (
            numbers(render(metrics_of(cluster.node(leader), cluster.loop.time())))['cluster_brokers{state="fenced"}']
            == 1
        )
    )


@pytest.mark.conforms("K595-52")
@in_cluster(1)
async def test_a_node_without_a_quorum_has_no_leader_metric(cluster: SimulatedCluster, /) -> None:
    cluster.start("n1")
    alone = cluster.machines["n1"]
    await cluster.until(lambda: alone.node is not None)
    await asyncio.sleep(1.5)
    page = numbers(render(metrics_of(cluster.node("n1"), cluster.loop.time())))
    assert (page["raft_current_leader"], page["raft_current_epoch"], page["raft_current_vote"]) == (-1, 0, -1)
    assert (page["raft_log_end_offset"], page["raft_log_end_epoch"]) == (0, -1)
    assert (page["raft_high_watermark"], page["raft_number_unknown_voter_connections"]) == (0, 0)
    assert page['raft_current_state{state="prospective"}'] + page['raft_current_state{state="unattached"}'] == 1


def test_names_are_described_once_and_labels_are_quoted() -> None:
    page = render([Metric("a_total", "A.", 1, {"x": 'q"\\\n'}), Metric("a_total", "A.", 2), Metric("b", "B.", 0.5)])
    assert page == (
        '# HELP a_total A.\n# TYPE a_total counter\na_total{x="q\\"\\\\\\n"} 1\na_total 2\n'
        "# HELP b B.\n# TYPE b gauge\nb 0.5\n"
    )


def served(tell: Callable[[Callable[[bytes], Awaitable[bytes]]], Awaitable[None]]) -> None:
    async def run() -> None:
        (port,) = free_ports(1)
        page = MetricsPage(lambda: "up 1\n")
        await page.start("127.0.0.1", port)

        async def ask(request: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(request)
                return await reader.read()
            except ConnectionError:
                return b""
            finally:
                writer.close()

        async with asyncio.timeout(120):
            await tell(ask)
        page.stop()

    asyncio.run(run())


@played_by(served)
async def test_only_the_metrics_page_is_served(ask: Callable[[bytes], Awaitable[bytes]], /) -> None:
    answer = await ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Type: text/plain; version=0.0.4" in answer
    assert answer.endswith(b"\r\n\r\nup 1\n")
    assert (await ask(b"GET /metrics?x=1 HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert (await ask(b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404")
    assert (await ask(b"POST /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 405")
    assert (await ask(b"\r\n\r\n")).startswith(b"HTTP/1.1 405")
    assert await ask(b"x" * (MOST_BYTES + 1)) == b""


@played_by(served)
async def test_a_silent_connection_is_closed_for_a_reader(ask: Callable[[bytes], Awaitable[bytes]], /) -> None:
    silent = [asyncio.ensure_future(ask(b"")) for _ in range(MOST_AT_ONCE + 1)]
    await asyncio.wait(silent, return_when=asyncio.FIRST_COMPLETED)
    assert (await ask(b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert sum(each.done() for each in silent) == 2
    for each in silent:
        each.cancel()
