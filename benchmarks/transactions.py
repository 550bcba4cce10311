"""CPU time and peak memory of `brownout check` for histories of transactions, by workload and consistency model.

    python -m benchmarks.transactions [TRANSACTIONS] [--scratch DIR]

Each history is generated: transactions of one to four steps by 20 processes, at most 32 writes to a key, as Elle's
generator makes them, on a store that is strictly serializable. A process of its own checks the file. Its figures have
all: reading the EDN, the checker, the certificate and its verification.
"""

import argparse
import multiprocessing
import resource
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from analysis.foreign.transaction_judgement import judge_transactions
from history.arrow import without_pandas
from history.foreign.transaction_rows import LIST_APPEND, RW_REGISTER, WRITES, read_transactions
from tests.analysis.transaction_histories import lines

CASES: Final = (
    (LIST_APPEND, "strict-serializable"),
    (LIST_APPEND, "snapshot-isolation"),
    (RW_REGISTER, "strict-serializable"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("transactions", nargs="?", type=float, default=1e6)
    parser.add_argument("--scratch", type=Path, help="a directory on a large disk")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        for workload in WRITES:
            path = Path(scratch) / f"{workload}.edn"
            with path.open("w", encoding="utf-8") as file:
                file.writelines(lines(int(options.transactions), workload))
            for model in (model for of, model in CASES if of == workload):
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                    figures = pool.submit(measured, path, workload, model).result()
                print(f"{workload}, {model}, {path.stat().st_size / 1e6:.0f} MB: {figures}", flush=True)


def measured(path: Path, workload: str, model: str) -> str:
    """The figures of one check in this process."""
    without_pandas()
    with tempfile.TemporaryDirectory(dir=path.parent) as place:
        history = read_transactions(path, Path(place), workload)
        read = resource.getrusage(resource.RUSAGE_SELF)
        judgement = judge_transactions(history, consistency=model)
    all_ = resource.getrusage(resource.RUSAGE_SELF)
    reading, whole = (usage.ru_utime + usage.ru_stime for usage in (read, all_))
    memory = f"{all_.ru_maxrss / 1e6:.2f} GB (reading {read.ru_maxrss / 1e6:.2f})"
    return f"{judgement.verdict}, {whole:.1f} CPU s (reading {reading:.1f}), {memory}; {judgement.sentence}"


if __name__ == "__main__":
    main()
