"""`python -m broker`: one broker as a process."""

import argparse
import asyncio
import gc
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from broker.config import BrokerConfig
from broker.controller.image import MetadataImage
from broker.disk import RealDisk
from broker.errors import StartupError
from broker.mutants import BENIGN, MUTANTS, Mutants, UnknownMutantError
from broker.server.broker_node import BrokerNode, NodeFailure
from broker.server.config_warnings import open_listeners
from broker.server.node_directory import METADATA_DIRECTORY
from broker.server.security import Security
from broker.trace import JsonLines, Sink, Tracer, Value

EXIT_OK, EXIT_USAGE, EXIT_FAILED = 0, 64, 70
PATIENCE_S = 5.0
"""How long a start may take before the broker prints what it waits for."""

EPILOG = f"""\
The configuration file has one key=value per line; # starts a comment. Four keys are required:

  node.id=1
  listeners=PLAINTEXT://127.0.0.1:9092
  quorum.voters=1@127.0.0.1:9093          (id@host:port of every voter of the metadata quorum, with commas)
  log.dir=/var/lib/brownout/1

Where quorum.voters names other nodes, these communicate over separate listeners, whose ports are in quorum.voters:

  listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
  controller.listener.names=CONTROLLER

TLS, SASL and access control lists (listener.security.protocol.map, ssl.*, sasl.*, authorizer.class.name, super.users)
are in docs/security.md.

Other useful keys: cluster.id, min.insync.replicas, default.replication.factor, trace.path (protocol events as JSON
lines), log.flush.interval.messages=1 (acknowledge only what is on disk), log.retention.ms and log.retention.bytes
(without them no record is deleted), auto.create.topics.enable=true, metrics.port (serves /metrics), max.connections,
max.connections.per.ip and max.connections.per.ip.overrides=10.0.0.1:100,... (brokers may connect beyond these limits),
connections.max.idle.ms (-1: idle connections are kept). An unknown key is an error; the message lists all keys.

The broker prints one line when it serves clients. SIGTERM and SIGINT stop it cleanly: leaders move away, logs are
flushed. Exit codes: {EXIT_OK} stopped; {EXIT_USAGE} wrong configuration or data directory; {EXIT_FAILED} failed, such
as by a disk error.

mutants (deliberate bugs, see docs/mutants.md): {", ".join(sorted(MUTANTS))};
benign mutants, which break no promise: {", ".join(sorted(BENIGN))}
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m broker",
        description="A broker that speaks the Kafka protocol: replicated logs, and its own metadata quorum.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the configuration, as below")
    parser.add_argument("--mutant", action="append", default=[], metavar="NAME", help="switch a mutant on; repeatable")
    parser.add_argument("--check", action="store_true", help="check the configuration, print its meaning, and exit")
    options = parser.parse_args(arguments)
    try:
        config = BrokerConfig.load(options.config)
        mutants = Mutants(options.mutant)
        if options.check:
            Security(config, random.Random(os.urandom(32)), MetadataImage)
            print(f"{options.config}: good: {_summary(config, config.cluster_id)}, data in {config.log_dir}")
            return EXIT_OK
        disk = _disk(config)
        tracer = _tracer(config)
    except (StartupError, UnknownMutantError) as error:
        print(f"broker: {error}", file=sys.stderr)
        return EXIT_USAGE
    code: int = _runner()(_serve(config, disk, tracer, mutants))
    if code == EXIT_FAILED:
        # No destructor, flush or thread may touch the disk any more: the state must be as after a SIGKILL.
        sys.stderr.flush()
        os._exit(code)
    disk.close()
    return code


async def _serve(config: BrokerConfig, disk: RealDisk, tracer: Tracer, mutants: Mutants) -> int:
    """Run a node until a signal, or until it fails. Returns the exit code."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    for warning in open_listeners(config):
        print(warning, flush=True)
    try:
        node = await BrokerNode.open(
            config,
            disk=disk,
            rng=random.Random(os.urandom(32)),
            tracer=tracer,
            mutants=mutants,
            clock=time.time_ns,
            descriptors=_all_descriptors(),
            say=partial(print, f"broker {config.node_id}:", flush=True),
        )
        await node.start()
    except StartupError as error:
        print(f"broker: {error}", file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        print(f"broker: {config.log_dir}: cannot be used as log.dir: {error}", file=sys.stderr)
        return EXIT_USAGE
    announcing = asyncio.ensure_future(_announce(node))
    stopping = asyncio.ensure_future(stop.wait())
    waited_for: list[asyncio.Future[Any]] = [stopping, node.failed]
    await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
    announcing.cancel()
    if not node.failed.done():
        await node.stop()
    if not node.failed.cancelled() and (failure := node.failed.exception()) is not None:
        print(f"broker {node.config.node_id} gives up: {failure}", file=sys.stderr)
        return EXIT_USAGE if isinstance(failure.__cause__, StartupError) else EXIT_FAILED
    return EXIT_OK


async def _announce(node: BrokerNode) -> None:
    """Print when clients are served, and what a new cluster waits for. Objects that exist by then live long, so the
    garbage collector skips them from now on (`gc.freeze`)."""
    ready = asyncio.ensure_future(node.ready())
    reported: tuple[int, ...] = ()
    try:
        while not (await asyncio.wait({ready}, timeout=PATIENCE_S))[0]:
            missing = node.quorum.waits_for
            if missing not in ((), reported):
                reported, ids = missing, ", ".join(map(str, missing))
                print(f"waits for voter {ids}: a new cluster starts once all of quorum.voters are up", flush=True)
        ready.result()
    except NodeFailure:
        return
    finally:
        ready.cancel()
    gc.collect()
    gc.freeze()
    for setting in node.overruled:
        print(setting, flush=True)
    print(f"{_summary(node.config, node.cluster_id)} is ready", flush=True)


def _summary(config: BrokerConfig, cluster_id: str | None) -> str:
    cluster = "" if cluster_id is None else f" of {cluster_id}"
    return f"broker {config.node_id}{cluster} at {config.addresses}"


def _disk(config: BrokerConfig) -> RealDisk:
    try:
        return RealDisk(config.log_dir, apart=(METADATA_DIRECTORY,))
    except OSError as error:
        raise StartupError(
            f"log.dir: {config.log_dir} cannot be created or used: {error.strerror}; name a writable directory"
        ) from error


def _tracer(config: BrokerConfig) -> Tracer:
    try:
        sink: Sink = _discard if config.trace_path is None else JsonLines(config.trace_path)
    except OSError as error:
        raise StartupError(f"trace.path: {config.trace_path} cannot be written: {error.strerror}") from error
    return Tracer(config.node_id, time.time_ns, sink)


def _all_descriptors() -> int:
    """Raise the soft limit of file descriptors to the hard limit. Returns the limit."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    return limit


def _discard(event: dict[str, Value]) -> None:
    """The trace sink of a broker without `trace.path`."""


def _runner() -> Callable[[Coroutine[Any, Any, int]], int]:
    """Use uvloop where it is installed: about twice as fast."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


if __name__ == "__main__":
    sys.exit(main())
