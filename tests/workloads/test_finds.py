"""docs/finds.md: the script about librdkafka shows what the page says of it."""

import subprocess
import sys

import pytest

from installation.files import PROJECT_ROOT

SCRIPT = PROJECT_ROOT / "docs" / "finds" / "librdkafka_resend.py"


@pytest.mark.parametrize(("options", "brokers"), [((), "[1, 2]"), (("stays",), "[1]")])
def test_librdkafka_sends_a_record_again_if_its_broker_leaves(options: tuple[str, ...], brokers: str) -> None:
    done = subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True, timeout=60, check=True)
    assert f"brokers that got the record: {brokers};" in done.stdout
