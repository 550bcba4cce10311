"""The oracle of producers' sequences: in every log, the batches of a producer epoch number its records without a gap.

A leader that accepts a batch out of sequence makes it impossible to write the records before it: every retry is
refused. The clients' records show that only as appends of unknown outcome.

The reference is the batches themselves, and the rule that an epoch starts at 0 (K98-2, K98-10); the broker's producer
state is not used. A producer's first batch is checked only if the log has every record from offset 0 on, and nothing is
checked where producers may have been forgotten (K98-5).
"""

from simulator.oracles.findings import SEQUENCE_GAP, OracleFindings
from simulator.oracles.log_copy import BatchSequence, CopiedLog
from simulator.oracles.machine_view import MachineView
from simulator.oracles.settings import EXPIRATION


def look_at_sequences(findings: OracleFindings, topic: str, index: int, name: str, copy: CopiedLog, added: int) -> None:
    """Check the last `added` batches of a replica's log."""
    for batch, sequence, predecessor in copy.sequenced_since(len(copy.batches) - added):
        findings.compared(SEQUENCE_GAP, topic)
        expected = _expected(sequence, predecessor, is_whole=not copy.start)
        is_older = predecessor is not None and sequence.epoch < predecessor.epoch
        if expected is not None and (sequence.sequence != expected or is_older):
            sentence = (
                f"{topic}-{index}: {name} holds sequence {sequence.sequence} of producer {sequence.producer_id} in "
                f"epoch {sequence.epoch} at offset {batch.base}, and {expected} is the next one"
            )
            witness = {"node": name, "producer": sequence.producer_id, "sequence": sequence.sequence, **batch.to_json()}
            findings.report(SEQUENCE_GAP, topic, index, sentence, witness)
            return


def _expected(sequence: BatchSequence, predecessor: BatchSequence | None, *, is_whole: bool) -> int | None:
    """The sequence that follows a producer's last batch; None: that batch may have been removed."""
    if predecessor is None:
        return 0 if is_whole else None
    if predecessor.epoch != sequence.epoch:
        return 0
    return predecessor.next_sequence


def forgets(machine: MachineView) -> bool:
    """Whether a producer may have been silent for long enough to be forgotten (K98-5)."""
    return machine.node is None or machine.own_time >= machine.settings.seconds(EXPIRATION)
