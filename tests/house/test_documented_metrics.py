"""The documents name each metric of remote storage that a broker has, and no other."""

import inspect
import re
from pathlib import Path
from typing import Final

from broker.server import metrics

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "tiered.md"


def test_the_page_of_tiered_storage_lists_each_metric_of_remote_storage() -> None:
    source = inspect.getsource(metrics.remote_storage_metrics)
    stated = set(re.findall(r'"(broker_remote_\w+)"', source))
    stated |= {f"broker_remote_{name}" for name, _ in metrics.REMOTE_SIZES}
    assert stated == set(re.findall(r"^\| `(broker_remote_\w+)` \|", PAGE.read_text("utf-8"), re.M))
