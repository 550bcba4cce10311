"""A broker reports a setting of its file that the cluster's value overrules."""

from broker.config import BrokerConfig
from broker.server.config_warnings import overruled
from simulator.cluster import SimulatedCluster

MINIMUM = "min.insync.replicas"
FILE = {"node.id": "1", "listeners": "PLAINTEXT://n1:9092", "quorum.voters": "1@n1:9092", "log.dir": "/data"}


def test_a_file_with_another_value_gets_a_warning_and_one_without_a_value_does_not() -> None:
    for own, cluster, count in (("1", "2", 1), ("2", "2", 0), (None, "2", 0)):
        properties = FILE if own is None else {**FILE, MINIMUM: own}
        found = overruled(BrokerConfig.from_properties(properties, "n1.properties"), {MINIMUM: cluster})
        assert len(found) == count
    (each,) = overruled(BrokerConfig.from_properties({**FILE, MINIMUM: "1"}, "n1.properties"), {MINIMUM: "2"})
    assert str(each).startswith("n1.properties: min.insync.replicas=1 has no effect: the cluster's value 2 ")
    assert "write 2 here" in str(each)
    assert str(each).endswith("--entity-type brokers --entity-default --add-config min.insync.replicas=1")


def test_a_broker_started_with_another_file_prints_the_overruled_setting() -> None:
    with SimulatedCluster(1, properties={MINIMUM: "2"}) as cluster:
        said: list[str] = []
        cluster.machines["n3"].say = said.append

        async def story() -> None:
            cluster.start()
            await cluster.ready()
            await cluster.until(lambda: len(said) == 1)
            assert cluster.journal.of("setting_overruled") == []
            cluster.reconfigure("n3", {MINIMUM: "1"})
            await cluster.stop("n3")
            cluster.start("n3")
            await cluster.ready()
            await cluster.until(lambda: said[-1].endswith("is ready") and len(said) > 2)
            (warning,) = (line for line in said if "has no effect" in line)
            assert warning.startswith("n3: min.insync.replicas=1 has no effect: the cluster's value 2 ")
            (event,) = cluster.journal.of("setting_overruled")
            assert (event["node"], event["key"], event["own"], event["cluster"]) == (3, MINIMUM, "1", "2")

        cluster.run(story())
