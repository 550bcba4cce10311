"""A ZooKeeper follower that lost power in its first seconds does not start again. Nothing of Brownout is needed.

    python zookeeper_snapshot.py CLASSPATH [SECONDS ...]

Three servers form an ensemble on loopback. The data of the first one is on an ext4 of its own, in a file. While it
answers a client, the file is copied as it is: that is what its disk has at a power loss. The server is then started on
the copy. SECONDS: how long the client has been writing by then (default: 3). CLASSPATH: the jars of ZooKeeper and of
what it needs, such as "zookeeper/*". It takes root, Java and the package kazoo.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kazoo.client import KazooClient

SERVERS = (1, 2, 3)
CLIENT_PORT, PEER_PORT, ELECTION_PORT = 24030, 24040, 24050
CONFIGURATION = """tickTime=500
initLimit=20
syncLimit=4
admin.enableServer=false
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
{peers}
"""
LOGGING = """log4j.rootLogger=ERROR, CONSOLE
log4j.appender.CONSOLE=org.apache.log4j.ConsoleAppender
log4j.appender.CONSOLE.layout=org.apache.log4j.SimpleLayout
"""


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def server(number, data, log):
    data.mkdir(exist_ok=True)
    with open(data / "myid", "w", encoding="utf-8") as file:
        file.write(str(number))
        file.flush()
        os.fsync(file.fileno())
    peers = "\n".join(f"server.{n}=127.0.0.1:{PEER_PORT + n}:{ELECTION_PORT + n}" for n in SERVERS)
    path = log.with_suffix(".cfg")
    path.write_text(CONFIGURATION.format(data=data, port=CLIENT_PORT + number, peers=peers), encoding="utf-8")
    logging = path.with_name("log4j.properties")
    logging.write_text(LOGGING, encoding="utf-8")
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    with open(log, "w", encoding="utf-8") as output:
        options = ["-Xmx96m", f"-Dlog4j.configuration=file:{logging}", "-Dzookeeper.forceSync=yes"]
        command = ["java", *options, "-cp", sys.argv[1], main, str(path)]
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)


def client(number, process):
    """A connected client, or None if the server has ended."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        client = KazooClient(f"127.0.0.1:{CLIENT_PORT + number}", timeout=4)
        try:
            client.start(timeout=2)
            return client
        except Exception:
            client.close()
    return None


def sizes(data):
    return {path.name: path.stat().st_size for path in sorted((data / "version-2").iterdir())}


def attempt(seconds, scratch):
    disk, copy, mount = scratch / "disk", scratch / "copy", scratch / "mount"
    mount.mkdir()
    run("truncate", "-s", "512M", disk)
    run("mkfs.ext4", "-q", "-F", disk)
    run("mount", "-o", "loop", disk, mount)
    processes = {}
    try:
        places = {number: mount / "data" if number == 1 else scratch / f"data-{number}" for number in SERVERS}
        for number in SERVERS:
            processes[number] = server(number, places[number], scratch / f"{number}.log")
        writer = client(1, processes[1])
        count, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            writer.create(f"/node-{count}", b"x" * 50)
            count += 1
            time.sleep(0.5)
        print(f"{count} writes acknowledged by the follower in {seconds:g} s; its files: {sizes(mount / 'data')}")
        shutil.copyfile(disk, copy)
        writer.stop()
        processes[1].kill()
        processes[1].wait()
        run("umount", mount)
        run("mount", "-o", "loop", copy, mount)
        print(f"its files after the power loss: {sizes(mount / 'data')}")
        processes[1] = server(1, mount / "data", scratch / "again.log")
        again = client(1, processes[1])
        if again is not None:
            again.stop()
        lines = (scratch / "again.log").read_text(encoding="utf-8").splitlines()
        reason = [line.strip() for line in lines if "No snapshot found" in line]
        print("it starts" if again is not None else f"IT DOES NOT START: {reason[:1]}", flush=True)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
        with contextlib.suppress(subprocess.CalledProcessError):
            run("umount", mount)


for text in sys.argv[2:] or ["3"]:
    with tempfile.TemporaryDirectory() as directory:
        attempt(float(text), Path(directory))
