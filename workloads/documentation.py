"""`python -m workloads.documentation` writes the declarations of the workload kinds into docs/workloads.md."""

from pathlib import Path
from typing import Final

from workloads.kind import WorkloadKind
from workloads.kinds import KINDS

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "workloads.md"
BEGIN: Final = "<!-- workload kinds: written by `python -m workloads.documentation` -->"
END: Final = "<!-- end of workload kinds -->"


def table() -> str:
    """The kinds and their parameters as Markdown."""
    return "\n".join([BEGIN, *(_section(KINDS[name]) for name in sorted(KINDS)), END])


def _section(kind: WorkloadKind) -> str:
    lines = [
        f"### `{kind.name}`",
        f"{kind.description} Checked as: {kind.judge}. Data in the partitions of a topic: {_yes(kind.partitioned)}. "
        f"Needs a user-defined client: {_yes(kind.own_client)}. "
        f"Script steps: {', '.join(sorted(kind.steps)) or 'none'}.",
        "",
        f"After the last heal, {kind.probe_means}; at the end {kind.read_means}.",
        "",
        "| key | default | bounds | meaning |",
        "|---|---|---|---|",
    ]
    for entry in kind.parameters:
        if isinstance(entry.default, bool):
            lines.append(f"| `{entry.key}` | {str(entry.default).lower()} | true or false | {entry.meaning} |")
            continue
        if isinstance(entry.default, str):
            lines.append(f"| `{entry.key}` | {entry.default} | {', '.join(entry.choices)} | {entry.meaning} |")
            continue
        unit = f" {entry.unit}" if entry.unit else ""
        bound = "or more" if entry.maximum is None else f"to {entry.maximum:,}"
        lines.append(f"| `{entry.key}` | {entry.default}{unit} | {entry.minimum:,} {bound} | {entry.meaning} |")
    return "\n".join([*lines, ""])


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    head, tail = text.split(BEGIN)
    PAGE.write_text(head + table() + tail.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
