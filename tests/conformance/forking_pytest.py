"""A program that has imported pytest, and forks for each trial: most of these tests run for less time than that takes.

It is started in a copy of the project, and imports nothing of it: each trial sees the source as it is then. It answers
each line that it reads, a trial as JSON, with the process that runs the tests, and, when that has ended, with pytest's
exit status; a negative one is the signal that ended it. It ends when nothing more can come.
"""

import asyncio
import concurrent.futures
import gc
import json
import os
import sys
import unittest.mock
import xml.etree.ElementTree
from collections.abc import Sequence

import _pytest.junitxml
import _pytest.unraisableexception
import cramjam
import crc32c
import msgspec
import numpy
import pyarrow.compute
import pytest

IMPORTED = (
    _pytest.junitxml, _pytest.unraisableexception, asyncio, concurrent.futures, crc32c, cramjam, msgspec,
    numpy, pyarrow.compute, unittest.mock, xml.etree.ElementTree,
)  # fmt: skip
"""What pytest and most of the tests would import one by one."""


def main() -> None:
    gc.freeze()  # pytest collects garbage again and again, and the imported modules are not garbage
    for line in sys.stdin:
        trial = json.loads(line)
        pid = os.fork()
        if pid == 0:
            run_tests(trial["arguments"], trial["output"])
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run_tests(arguments: Sequence[str], output: str) -> None:
    """In a process of its own, which ends here. `output`: the file that takes what it says."""
    for stream, path in ((0, os.devnull), (1, output), (2, output)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), stream)
    status: int = pytest.ExitCode.INTERNAL_ERROR
    try:
        status = pytest.main([*arguments])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
