"""Files of a run are read through `history.regular_files` and `history.strict_json` only: a pipe among the evidence
blocks no reader, and all readers see the same content."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS: Final = (
    "history",
    "analysis",
    "orchestrator/campaign",
    "orchestrator/store",
    "orchestrator/gate",
    "orchestrator/search",
)
METHODS: Final = frozenset({"read_bytes", "read_text", "open", "load", "loads", "fromfile", "memory_map", "OSFile"})
"""Ways to open a file, or to read JSON or TOML, as methods or functions of a module."""
LIBRARY: Final = frozenset({"ParquetFile", "read_table", "read_schema"})
"""Readers of a library that open a path themselves."""
ALLOWED: Final = frozenset(
    {
        (
            "analysis/foreign/judgement.py",
            "os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)",
        ),  # the lock of a draft
        ("history/regular_files.py", "os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)"),
        ("history/regular_files.py", "open(draft, 'x', encoding='utf-8', errors='backslashreplace')"),
        ("history/strict_toml.py", "tomllib.loads(text)"),
        ("history/checksummed_lines.py", "os.open(path, flags, 420)"),  # a writer's own file
        ("history/record/growing_operations.py", "pa.ipc.read_schema(message)"),  # a message of a regular file
        ("analysis/verdict.py", "json.loads(text.encode('utf-8', errors='replace'))"),  # what was just made
        (
            "analysis/engines/processor_time.py",
            "Path(f'/proc/{pid}/stat').read_text(encoding='utf-8', errors='replace')",
        ),
        ("analysis/engines/own_check.py", "json.loads(line)"),  # of its own process
        ("analysis/engines/own_check.py", "json.loads(sys.stdin.readline())"),  # of its own process
        ("analysis/engines/own_check.py", "open(output, 'ab')"),  # in a directory that was just made
        ("analysis/engines/own_check.py", "pq.read_table(tables / 'faults.parquet')"),  # which was just made
        ("analysis/engines/spark.py", "(self.directory / _LOG).read_text(encoding='utf-8', errors='replace')"),
        ("analysis/engines/spark.py", "open(self.directory / _LOG, 'ab')"),  # in a directory that was just made
        ("analysis/analysis_revision.py", "path.read_bytes()"),  # the program itself
        ("analysis/report.py", "(TEMPLATES / name).read_text(encoding='utf-8')"),  # the program itself
        ("orchestrator/store/run_digests.py", "os.open(_path(campaign_dir, stamp), flags, 420)"),  # appends
        ("orchestrator/store/plans.py", "os.open(path, os.O_RDWR | os.O_CLOEXEC)"),  # locks and claims of names
        (
            "orchestrator/store/plans.py",
            "os.open(path.with_suffix('.campaign'), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 420)",
        ),
        (
            "orchestrator/store/directories.py",
            "os.open(self.path / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 420)",
        ),
        ("orchestrator/store/directories.py", "Path('/proc/locks').read_text(encoding='ascii')"),
        (  # an index of 10,000 runs, which decides nothing
            "orchestrator/store/index.py",
            "msgspec.json.decode(read_bytes(path), type=kind)",
        ),
        (  # columns of a table with checksums
            "orchestrator/store/tables.py",
            "msgspec.json.decode(columns[name] or '', type=kind)",
        ),
        ("orchestrator/store/tables.py", "open(path, 'wb')"),  # in a directory that was just made
        (
            "orchestrator/store/tables.py",
            "os.open(folder / '.lock', os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 420)",
        ),
        ("orchestrator/search/campaign_document.py", "tomllib.loads(campaign.text)"),  # read before
        ("orchestrator/search/exploring.py", "(self.path / _RUNS).open('ab')"),  # writers of own files
        ("orchestrator/search/exploring.py", "msgspec.json.decode(read_bytes(heads[-1]), type=Head)"),
        ("orchestrator/search/exploring.py", "os.open(self.path / _HEAD, os.O_RDWR | os.O_CLOEXEC)"),
        ("orchestrator/search/trace_text.py", "path.open('w', encoding='utf-8')"),
    }
)


def readers() -> Iterator[tuple[str, str]]:
    """The file and the text of each call that opens a file or decodes JSON in a way of its own."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(call, ast.Call) and is_reader(call):
                    yield path.relative_to(ROOT).as_posix(), ast.unparse(call)


def is_reader(call: ast.Call) -> bool:
    text = ast.unparse(call)
    if isinstance(call.func, ast.Name):
        return call.func.id == "open"
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr in LIBRARY:
        return "require_regular(" not in text and "BufferReader(" not in text
    if text.startswith("pickle.loads("):  # between workers
        return False
    return call.func.attr in METHODS or text.startswith("msgspec.json.decode(")


def test_only_allowed_modules_read_files_of_a_run() -> None:
    assert sorted(set(readers()) - ALLOWED) == []


def test_every_allowed_module_reads_files_of_a_run() -> None:
    assert sorted(ALLOWED - set(readers())) == []
