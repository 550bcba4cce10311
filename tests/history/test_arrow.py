"""Clients record with Arrow, and do not wait for pandas."""

import subprocess
import sys

PROGRAM = """
import sys
from history.arrow import without_pandas
without_pandas()
import pyarrow as pa
pa.record_batch([pa.array([1]), pa.array(["a"]).dictionary_encode()], names=["number", "text"])
print("pandas" in sys.modules)
import pandas
print(pa.Table.from_pandas(pandas.DataFrame({"number": [1, 2]})).to_pandas().number.sum())
"""


def test_recording_does_not_import_pandas_and_a_program_can_import_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "3"]
