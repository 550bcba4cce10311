"""The digests with which the runs of a plan ended, stored beside the plan.

Theory of operation. The seal of a run and the digest in its verdict are in the run's directory, so a run that is
replaced, renamed or sealed again brings its own. When a run has ended, `record` therefore appends a line to
`<campaign>/plans/<stamp>.digests`: the run's name, the digest of its evidence, and the digest of the plan with the
campaign's text. This closes one chain: campaign - plan - evidence - verdict, because a verdict names the evidence that
it was computed from. The evidence contains `run.toml`, so nothing has to derive that from the plan again.

If the environment has BROWNOUT_SEAL_KEY, a line ends with a keyed digest (HMAC-SHA-256, RFC 2104) of the rest, and the
gate requires it. Without a key the chain detects accidental changes only (docs/decisions/seal.md).

Each line is one write, so runs that are made at the same time append to one file. A torn line counts as absent.
"""

import hashlib
import hmac
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from history.regular_files import read_bytes, read_text
from orchestrator.campaign.plan import invocation_of
from orchestrator.store.plans import plans_dir

KEY_VARIABLE: Final = "BROWNOUT_SEAL_KEY"
_UNSIGNED: Final = "-"


class RunDigest(NamedTuple):
    """A line of the file.

    `evidence`: the digest of the run's evidence (`history.seal`) when it ended.
    `plan`: the digest of the plan's two files at that time.
    `signature`: the keyed digest of run, evidence and plan; "-" without a key.
    """

    run: str
    evidence: str
    plan: str
    signature: str


def record(campaign_dir: Path, run: str, evidence: str) -> None:
    """Append the digest of a run that has ended. A run without a stored plan has no line. Raises OSError."""
    stamp = invocation_of(run)
    try:
        plan = _digest_of_plan(campaign_dir, stamp)
    except FileNotFoundError:
        return
    line = RunDigest(run, evidence, plan, _signature(run, evidence, plan) or _UNSIGNED)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(_path(campaign_dir, stamp), flags, 0o644)
    try:
        os.write(descriptor, f"{' '.join(line)}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_digests(campaign_dir: Path, stamp: str) -> Mapping[str, RunDigest]:
    """By run: the last complete line. Empty if the file is missing or unreadable: then no run has a digest."""
    try:
        lines = read_text(_path(campaign_dir, stamp)).splitlines(keepends=True)
    except (OSError, UnicodeDecodeError):
        return {}
    fields = [line.split() for line in lines if line.endswith("\n")]
    return {run: RunDigest(run, *digests) for run, *digests in filter(None, fields) if len(digests) == 3}


def doubts(campaign_dir: Path, run: str, evidence: str, digest: RunDigest | None) -> Iterator[str]:
    """Sentences: why a verdict is not about the evidence with which the planned run ended. `evidence`: the digest in
    the verdict. `digest`: the recorded one, None if it is missing."""
    stamp = invocation_of(run)
    name = f"plans/{stamp}.digests"
    if digest is None:
        yield f"{name} has no digest of the run: it is unknown whether its files are those with which it ended"
        return
    if digest.evidence != evidence:
        yield f"the run's evidence is not that with which it ended, by its digest in {name}"
    try:
        if digest.plan != _digest_of_plan(campaign_dir, stamp):
            yield f"the plan or the campaign of {stamp} has changed since the run ended, by its digest in {name}"
    except OSError as error:
        yield f"the plan of {stamp} cannot be read: {error.strerror}"
    signature = _signature(digest.run, digest.evidence, digest.plan)
    if signature and not hmac.compare_digest(signature, digest.signature):
        yield f"the digest of the run in {name} is not signed with the key in {KEY_VARIABLE}"


def _path(campaign_dir: Path, stamp: str) -> Path:
    return plans_dir(campaign_dir) / f"{stamp}.digests"


def _digest_of_plan(campaign_dir: Path, stamp: str) -> str:
    """Of the plan and the campaign's text. Raises OSError."""
    digest = hashlib.sha256()
    for suffix in (".toml", ".campaign"):
        digest.update(hashlib.sha256(read_bytes(plans_dir(campaign_dir) / f"{stamp}{suffix}")).digest())
    return digest.hexdigest()


def _signature(run: str, evidence: str, plan: str) -> str:
    """Empty if the environment has no key."""
    key = os.environ.get(KEY_VARIABLE, "")
    return hmac.new(key.encode(), f"{run} {evidence} {plan}".encode(), "sha256").hexdigest() if key else ""
