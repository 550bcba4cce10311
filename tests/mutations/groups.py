"""Mutations of the records of consumer group members."""

from collections.abc import Callable
from pathlib import Path

from analysis.evidence.event_times import lives_of
from history.checksummed_lines import text_of
from history.record.offset_record import ASSIGN, ATTEMPT_S, COMMIT, DELIVER, FETCH, REVOKE
from history.record.schemas import INF
from tests.analysis.offset_records import commit_batch
from tests.mutations.mutation import PASSES, Catalog, fails, unknown
from tests.mutations.segments import Batches, end_of, of_batches, rebased
from tests.mutations.stored import FIRST_SEGMENT, Line, Stored, checked, event, phase

mutation = Catalog("groups", base="group")

GROUPS = "history/groups"
READER = f"{GROUPS}/reader-1.jsonl"
TELLS = unknown("groups|members")
OFFSETS_LOG = f"nodes/n1/data/__consumer_offsets-0/{FIRST_SEGMENT}"
Lines = list[Line]


def rewrite(run: Stored, name: str, change: Callable[[Lines], Lines]) -> None:
    """The member wrote these lines: their numbers and checksums are right."""
    path = run / name
    before = path.read_bytes()
    path.write_bytes(text_of(change(checked(path))))
    assert path.read_bytes() != before, f"{name} stayed as it was"


def _anything(_: Line) -> bool:
    return True


def _is_answered(line: Line) -> bool:
    return bool(line["ret"] < INF)


def _is_unanswered(line: Line) -> bool:
    return not _is_answered(line)


def _in_time(lines: Lines) -> Lines:
    """The lines in the order of their times, between the first and the last one."""
    return [lines[0], *sorted(lines[1:-1], key=_moment), lines[-1]]


def _moment(line: Line) -> int:
    return int(line["ret"] if _is_answered(line) else line["inv"])


def having(run: Stored, f: str, which: Callable[[Line], bool] = _anything) -> str:
    """The file of a member that has such a line."""
    for path in sorted((run / GROUPS).glob("member-*.jsonl")):
        if any(line.get("f") == f and which(line) for line in checked(path)):
            return f"{GROUPS}/{path.name}"
    raise AssertionError(f"no member wrote {f}")


def _one(run: Stored, f: str, change: Callable[[Line], object], which: Callable[[Line], bool] = _anything) -> None:
    """Change the last line of a kind."""

    def changed(lines: Lines) -> Lines:
        change([line for line in lines if line.get("f") == f and which(line)][-1])
        return lines

    rewrite(run, having(run, f, which), changed)


def _each(f: str, change: Callable[[Line], object]) -> Callable[[Lines], Lines]:
    """Changes each line of a kind."""

    def changed(lines: Lines) -> Lines:
        for line in lines:
            if line.get("f") == f:
                change(line)
        return lines

    return changed


def _drop(run: Stored, f: str, which: Callable[[Line], bool] = _anything) -> None:
    """No member wrote any line of a kind."""
    for path in sorted((run / GROUPS).glob("member-*.jsonl")):
        lines = checked(path)
        kept = [line for line in lines if line.get("f") != f or not which(line)]
        if len(kept) < len(lines):
            rewrite(run, f"{GROUPS}/{path.name}", lambda _: kept)  # noqa: B023 - called at once


# ---- files


mutation.add("all records deleted", lambda run: run.remove(GROUPS), TELLS)
mutation.add("the directory emptied", lambda run: run.empty(GROUPS), TELLS)
mutation.add("a members record deleted", lambda run: run.remove(f"{GROUPS}/member-1.jsonl"), unknown("member-1"))
mutation.add("the readers record deleted", lambda run: run.remove(READER), unknown("reader-1"))
mutation.add("a members record emptied", lambda run: run.empty(f"{GROUPS}/member-1.jsonl"), unknown("member-1"))


@mutation(unknown("member-2"))
def a_members_record_is_another_s(run: Stored) -> None:
    run.copy(f"{GROUPS}/member-1.jsonl", f"{GROUPS}/member-2.jsonl")


@mutation(unknown("member-9"))
def a_record_of_an_unstarted_member(run: Stored) -> None:
    run.copy(f"{GROUPS}/member-1.jsonl", f"{GROUPS}/member-9.jsonl")


@mutation(unknown("member-1"))
def a_record_is_a_directory(run: Stored) -> None:
    run.remove(f"{GROUPS}/member-1.jsonl")
    (run / f"{GROUPS}/member-1.jsonl").mkdir()


mutation.add(
    "a record torn", lambda run: run.edit(f"{GROUPS}/member-1.jsonl", lambda data: data[:-9]), unknown("member-1")
)


@mutation(unknown("reader-1"))
def a_bit_flipped(run: Stored) -> None:
    run.edit(READER, lambda data: data[:30] + bytes([data[30] ^ 4]) + data[31:])


@mutation(unknown("member-1"))
def a_line_missing(run: Stored) -> None:
    run.edit(f"{GROUPS}/member-1.jsonl", lambda data: b"".join(data.splitlines(keepends=True)[1:]))


@mutation(unknown("member-1"))
def a_line_twice(run: Stored) -> None:
    run.edit(f"{GROUPS}/member-1.jsonl", lambda data: data.splitlines(keepends=True)[0] + data)


@mutation(unknown("member-1"))
def two_lines_exchanged(run: Stored) -> None:
    def exchanged(data: bytes) -> bytes:
        one, other, *rest = data.splitlines(keepends=True)
        return b"".join([other, one, *rest])

    run.edit(f"{GROUPS}/member-1.jsonl", exchanged)


@mutation(unknown("member-1"))
def bytes_that_are_not_utf8(run: Stored) -> None:
    run.edit(f"{GROUPS}/member-1.jsonl", lambda data: data + b"\xff\xfe\x00\n")


@mutation(unknown("member-1"))
def a_member_that_has_not_ended(run: Stored) -> None:
    rewrite(run, f"{GROUPS}/member-1.jsonl", lambda lines: lines[:-1])


# ---- what the lines say


@mutation(fails("lost-acknowledged-commit"))
def the_committed_offsets_were_gone_in_the_end(run: Stored) -> None:
    rewrite(run, READER, _each(FETCH, lambda line: line.update(offset=-1)))


@mutation(fails("lost-acknowledged-commit", "phantom-commit"))
def an_offset_went_back_in_the_end(run: Stored) -> None:
    rewrite(run, READER, _each(FETCH, lambda line: line.update(offset=line["offset"] - 1)))


def _in_place(lines: Lines, new: Line) -> Lines:
    """With one line more, in front of the first that is later, and of the last, by which a member ends."""
    last = len(lines) - 1
    place = next((at for at, line in enumerate(lines[1:-1], 1) if _moment(line) > _moment(new)), last)
    return [*lines[:place], new, *lines[place:]]


def _first_commit_again(run: Stored, took_s: float) -> None:
    """Each partition's first offset is committed immediately after its creation, so that later fetches always return an
    offset: to the reader, and to every member that fetches as late. When a member leaves late, the others get a new
    assignment."""
    name = having(run, COMMIT)
    asked = [line for line in checked(run / READER) if line.get("f") == FETCH]
    partitions = sorted({line["partition"] for line in asked})
    since = min(line["inv"] for line in asked)
    # A member is there for as long as the load lasts, however late it is let into its group and commits on its own.
    began, ended = lives_of(run.lines())[Path(name).stem]
    at, answered = began + 1, began + 1 + int(took_s * 1e9)
    assert answered < ended, f"{name} was not there for {took_s} s"

    def committed(lines: Lines) -> Lines:
        for partition in partitions:
            commit = {"f": COMMIT, "partition": partition, "inv": at, "ret": INF, "offset": 0, "id": 10**6}
            held = {"f": ASSIGN, "partition": partition, "inv": at, "ret": at}
            for new in (held, commit, commit | {"ret": answered}):
                lines = _in_place(lines, new)
        return lines

    def shows_zero(line: Line) -> None:
        if line["ret"] >= min(since, answered):
            line["offset"] = 0 if line["ret"] >= since else max(line["offset"], 0)

    rewrite(run, name, committed)
    run.edit(OFFSETS_LOG, of_batches(lambda batches: _with_commits_of_zero(batches, partitions)))
    for path in sorted((run / GROUPS).glob("*.jsonl")):
        path.write_bytes(text_of(_each(FETCH, shows_zero)(checked(path))))


def _with_commits_of_zero(batches: Batches, partitions: list[int]) -> Batches:
    """An offsets log that ends with commits of offset 0."""
    end = end_of(batches)
    return [*batches, *(commit_batch(end + rank, partition, 0) for rank, partition in enumerate(partitions))]


@mutation(PASSES)
def a_commit_that_was_answered_late_took_effect_again(run: Stored) -> None:
    """It may have been sent twice."""
    _first_commit_again(run, ATTEMPT_S + 0.5)


@mutation(fails("lost-acknowledged-commit"))
def a_commit_that_was_answered_at_once_took_effect_again(run: Stored) -> None:
    _first_commit_again(run, 0.5)


@mutation(fails("phantom-commit"))
def a_fetch_shows_an_uncommitted_offset(run: Stored) -> None:
    rewrite(run, READER, _each(FETCH, lambda line: line.update(offset=line["offset"] + 1_000)))


mutation.add("committed records were not delivered", lambda run: _drop(run, DELIVER), fails("skipped-record"))


@mutation(fails("skipped-record"))
def the_first_record_was_not_delivered(run: Stored) -> None:
    def behind(line: Line) -> bool:
        return bool(line["first"] == 0 < line["offset"])

    _one(run, DELIVER, lambda line: line.update(first=1), behind)


@mutation(fails("skipped-record"))
def records_were_given_out_only_after_their_commit(run: Stored) -> None:
    late = 60_000_000_000
    for path in sorted((run / GROUPS).glob("member-*.jsonl")):
        lines = _each(DELIVER, lambda line: line.update(inv=line["ret"] + late, ret=line["ret"] + late))(checked(path))
        path.write_bytes(text_of(_in_time(lines)))


@mutation(fails("skipped-record"))
def a_commit_beyond_the_log(run: Stored) -> None:
    def beyond(lines: Lines) -> Lines:
        last = [line for line in lines if line.get("f") == COMMIT and _is_answered(line)][-1]
        same = {name: last[name] for name in ("f", "id", "partition")}
        return [line | {"offset": 2**50} if same.items() <= line.items() else line for line in lines]

    rewrite(run, having(run, COMMIT, _is_answered), beyond)


mutation.add("no commit is on record", lambda run: _drop(run, COMMIT), TELLS, fails("phantom-commit"))
mutation.add(
    "no commit was answered", lambda run: _drop(run, COMMIT, _is_answered), unknown("no commit was acknowledged")
)


@mutation(TELLS, fails())
def an_answer_to_no_commit(run: Stored) -> None:
    _one(run, COMMIT, lambda line: line.update(id=10**6), _is_answered)


@mutation(TELLS, fails())
def an_answer_before_its_commit(run: Stored) -> None:
    _one(run, COMMIT, lambda line: line.update(ret=1), _is_answered)


@mutation(TELLS, fails())
def a_commit_with_a_number_that_was_used(run: Stored) -> None:
    def again(lines: Lines) -> Lines:
        at = next(at for at, line in enumerate(lines) if line.get("f") == COMMIT)
        return [*lines[: at + 1], lines[at], *lines[at + 1 :]]

    rewrite(run, having(run, COMMIT), again)


@mutation(TELLS, fails())
def a_negative_offset(run: Stored) -> None:
    _one(run, COMMIT, lambda line: line.update(offset=-7), _is_unanswered)


@mutation(TELLS, fails())
def an_offset_that_is_a_word(run: Stored) -> None:
    _one(run, COMMIT, lambda line: line.update(offset="many"), _is_unanswered)


@mutation(TELLS, fails())
def an_offset_that_is_a_fraction(run: Stored) -> None:
    _one(run, DELIVER, lambda line: line.update(offset=line["offset"] + 0.5))


mutation.add(
    "an offset larger than any", lambda run: _one(run, DELIVER, lambda line: line.update(offset=2**80)), TELLS, fails()
)


@mutation(TELLS, fails())
def records_with_an_end_before_their_start(run: Stored) -> None:
    _one(run, DELIVER, lambda line: line.update(first=line["offset"] + 5))


mutation.add("a time before all time", lambda run: _one(run, DELIVER, lambda line: line.update(inv=-1)), TELLS, fails())


@mutation(TELLS, fails())
def a_fetch_with_an_end_before_its_start(run: Stored) -> None:
    _one(run, FETCH, lambda line: line.update(inv=line["ret"] + 1))


@mutation(unknown("partitions that do not exist"), fails())
def a_partition_that_there_is_not(run: Stored) -> None:
    _one(run, FETCH, lambda line: line.update(partition=7, offset=3))


mutation.add(
    "a partition of no number", lambda run: _one(run, FETCH, lambda line: line.update(partition=-1)), TELLS, fails()
)


@mutation(TELLS, fails())
def a_line_of_a_kind_that_there_is_not(run: Stored) -> None:
    _one(run, ASSIGN, lambda line: line.update(f="appoint"))


@mutation(TELLS, fails())
def a_line_without_its_time(run: Stored) -> None:
    _one(run, COMMIT, lambda line: line.pop("inv"), _is_unanswered)


mutation.add(
    "an offset that is a list", lambda run: _one(run, FETCH, lambda line: line.update(offset=[3])), TELLS, fails()
)


@mutation(unknown("fetched after healing"))
def the_final_offsets_were_not_fetched(run: Stored) -> None:
    """Members fetched before, and that does not show later commits."""
    since = next(line["t"] for line in run.lines() if phase("final")(line))
    for path in sorted((run / GROUPS).glob("*.jsonl")):
        kept = [line for line in checked(path) if line.get("f") != FETCH or line["ret"] < since]
        path.write_bytes(text_of(kept))


@mutation(unknown("member-", "before it started"))
def records_were_given_out_before_the_run(run: Stored) -> None:
    for path in sorted((run / GROUPS).glob("member-*.jsonl")):
        early = _each(DELIVER, lambda line: line.update(inv=0, ret=0))(checked(path))
        path.write_bytes(text_of(_in_time(early)))


# ---- what the members' own operations say


@mutation(unknown("while it did not hold it"))
def an_assignment_is_not_on_record(run: Stored) -> None:
    """A member reads and commits what it was assigned."""
    _drop(run, ASSIGN)


@mutation(unknown("while it did not hold it"))
def a_partition_was_given_back_at_once(run: Stored) -> None:
    def back(lines: Lines) -> Lines:
        at = next(at for at, line in enumerate(lines) if line.get("f") == ASSIGN)
        return [*lines[: at + 1], lines[at] | {"f": REVOKE}, *lines[at + 1 :]]

    rewrite(run, having(run, ASSIGN), back)


# ---- who took part


@mutation(unknown("member"), fails("phantom-commit", "skipped-record"))
def a_member_is_not_in_the_journal(run: Stored) -> None:
    run.drop_lines(event("client", client="member-1"))


# ---- the offsets log on disk


@mutation(fails("lost-acknowledged-commit"))
def a_commit_lost_that_later_ones_hide(run: Stored) -> None:
    run.edit(OFFSETS_LOG, of_batches(lambda batches: rebased([*batches[:6], *batches[8:]])))


@mutation(fails("lost-acknowledged-commit"))
def the_offsets_log_lost_its_end(run: Stored) -> None:
    run.edit(OFFSETS_LOG, of_batches(lambda batches: batches[:-4]))


mutation.add(
    "the offsets log emptied", lambda run: run.edit(OFFSETS_LOG, lambda _: b""), fails("lost-acknowledged-commit")
)


@mutation(fails("phantom-commit"))
def a_commit_in_the_offsets_log_that_no_member_made(run: Stored) -> None:
    def with_another(batches: Batches) -> Batches:
        return [*batches, commit_batch(end_of(batches), 0, 1 << 30)]

    run.edit(OFFSETS_LOG, of_batches(with_another))


@mutation(unknown("offsets log 0 of n1", "torn"))
def the_offsets_log_torn(run: Stored) -> None:
    run.edit(OFFSETS_LOG, lambda data: data[:-5])


@mutation(unknown("offsets log 0 of n1", "no segments"))
def a_segment_of_the_offsets_log_deleted(run: Stored) -> None:
    run.remove(OFFSETS_LOG)


@mutation(unknown("no node has a replica of the offsets topic"))
def the_offsets_log_deleted(run: Stored) -> None:
    run.remove("nodes/n1/data/__consumer_offsets-*")


@mutation(unknown("the offsets log 0 of n1 ends at .*, before its high watermark"))
def the_offsets_log_ends_before_its_high_watermark(run: Stored) -> None:
    run.text(
        "nodes/n1/data/replication-offset-checkpoint", r"^__consumer_offsets 0 (\d+)$", r"__consumer_offsets 0 \g<1>7"
    )


@mutation(unknown("different topics of that name|with which no topic of that name was created"))
def the_offsets_topic_is_another_one(run: Stored) -> None:
    """A topic of that name was created, with another id."""
    run.text("nodes/n1/data/__consumer_offsets-0/partition.metadata", r"^topic_id: .*$", f"topic_id: {'A' * 21}Q")
