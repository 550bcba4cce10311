"""Power loss: a machine loses everything that is not on its disk.

Marks on a host's disk, which show what survived a power loss: one mark that was synced, and one that was not.

The synced mark is written when no other data is at risk: after the start of the services, and after a boot. The other
one is written just before a cut, without a sync, because a sync would also save the service's unsynced data. Both are
written over what the same files had before, so a full disk has room for them. A disk that a fault keeps from taking a
new synced mark keeps the one before, which must survive the next cut as well.

Checks that a power cut lost unsynced data: the tails of files that a scenario needs to lose.

The kernel may write unsynced data back at any time: after a sync of the whole machine, when memory is short, or after
30 s. Therefore a scenario that needs a loss names the files, and their content just before the cut is compared with the
content after it. A disk that kept everything proves nothing.
"""

import shlex
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from history.damage import Damage
from history.fault_looks import FaultGroup
from history.journal.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault, Status, combine, worst
from nemeses.kind import Facts, Kind, Need, RandomDraw, facts_of, listed, node_facts
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import guarded, on_each, required
from nemeses.mechanisms.service import start_and_verify
from nemeses.mechanisms.shell import ask, question
from nemeses.parameters import Choice, Files, Parameter, ParameterError
from nemeses.ports import Host, HostError, PowerSwitch, Site

_DIGEST = 'digest() { echo "$1=$2 $(head -c "$2" "$1" 2>/dev/null | sha256sum | cut -c1-64)"; }'
_DEADLINE_S = 60.0


@question
def digest_files_script(directory: str, pattern: str) -> str:
    """For each non-empty regular file of a directory that matches the pattern: its path below it, its size, and the
    SHA-256 digest of its content; and `noted`."""
    digest = '[ -f "$file" ] && [ ! -L "$file" ] && [ -s "$file" ] && digest "$file" "$(($(wc -c < "$file")))"'
    return f"{_DIGEST}\ncd {shlex.quote(directory)} || exit\nfor file in {pattern}; do\n{digest}\ndone\necho noted=yes"


@question
def digest_heads_script(directory: str, sizes: Mapping[str, int]) -> str:
    """The same for the first bytes of each of these files, as many as given, if it exists."""
    lines = [f"digest {shlex.quote(path)} {size}" for path, size in sizes.items()]
    return "\n".join([_DIGEST, f"cd {shlex.quote(directory)} || exit", *lines])


class AtStake:
    """The files at stake on every host, from just before the cut until the power is back."""

    def __init__(self) -> None:
        self._before: dict[str, dict[str, tuple[int, str]]] = {}

    def note(self, host: Host, pattern: str) -> None:
        """Record the content of the files that match this pattern. Raises `HostError`, also when all are empty."""
        digests = _digests(ask(host, digest_files_script(host.data_dir, pattern), timeout_s=_DEADLINE_S))
        if not digests:
            raise HostError(f"{host.name}: no data is at stake: no file in {host.data_dir} matches {pattern}")
        self._before[host.name] = digests

    def look_after_cut(self, host: Host) -> Evidence:
        """Whether the last cut lost a part of it; confirmed if no data was at stake. Raises `HostError`."""
        digests = self._before.pop(host.name, None)
        if digests is None:
            return Evidence("confirmed", {})
        sizes = {path: size for path, (size, _) in digests.items()}
        heads = _digests(ask(host, digest_heads_script(host.data_dir, sizes), timeout_s=_DEADLINE_S))
        if any(heads.get(path) != digest for path, digest in digests.items()):
            return Evidence("confirmed", {"at_stake": "lost"})
        return Evidence("mismatch", {"at_stake": "kept", "kept": sorted(digests)})


def _digests(answer: Mapping[str, str]) -> dict[str, tuple[int, str]]:
    """By path: the number of bytes, and their digest."""
    parted = {path: value.split() for path, value in answer.items()}
    return {path: (int(fields[0]), fields[1]) for path, fields in parted.items() if len(fields) == 2}


# A filesystem may be mounted shortly after the host answers.
_MOUNTED_S = 5


@question
def renew_mark_script(directory: str, mark: str) -> str:
    """Write this mark in a data directory, and zeros in the place of the other one; sync both. Prints `synced`."""
    return (
        f"{_marks(directory)}\n"
        f'mkdir -p "$marks" && put {mark} synced && put {"0" * len(mark)} unsynced && '
        'sync "$marks/synced" "$marks/unsynced" "$marks" "$data" && echo synced=yes'
    )


@question
def leave_mark_script(directory: str, mark: str) -> str:
    """Write this mark over the zeros, without a sync; prints `written`."""
    return f"{_marks(directory)}\nput {mark} unsynced && echo written=yes"


@question
def read_marks_script(directory: str, looks: int) -> str:
    """Prints the content of both marks, `synced` and `unsynced`: empty without a mark. Looks for the synced one ten
    times a second, until it exists."""
    return f"""{_marks(directory)}
for i in {" ".join("." * looks)}; do [ -e "$marks/synced" ] && break; sleep 0.1; done
content() {{ tr -cd 0-9a-f < "$marks/$1" 2>/dev/null | head -c 64; }}
echo "synced=$(content synced)"; echo "unsynced=$(content unsynced)\""""


def _marks(directory: str) -> str:
    """`put MARK NAME` writes over a file in place: it needs no further space, and a file that is not truncated is not
    written back early (auto_da_alloc)."""
    put = 'put() { printf %s "$1" 1<> "$marks/$2"; }'
    return f'data={shlex.quote(directory)}; marks="$data/.brownout"\n{put}'


class Marks:
    """The marks of all hosts. A host has no mark until `renew`."""

    def __init__(self, site: Site) -> None:
        self._looks = 10 * round(_MOUNTED_S * site.time_scale)
        self._new_mark = site.new_mark
        self._synced: dict[str, str] = {}
        self._unsynced: dict[str, str | None] = {}  # of the hosts that were cut since the last look; None: not written

    def renew(self, host: Host) -> Evidence:
        """Write a new synced mark, which must survive the next cut, and clear the other. Raises `HostError`."""
        mark = self._new_mark()
        ask(host, renew_mark_script(host.data_dir, mark))
        self._synced[host.name] = mark
        self._unsynced.pop(host.name, None)
        return Evidence("confirmed", {"synced_mark": mark})

    def leave_unsynced(self, host: Host) -> None:
        """Write the mark that a cut should destroy; does nothing on a host without marks. Raises `HostError`: the cut
        is then proven by the synced mark alone."""
        if host.name not in self._synced:
            return
        mark = self._new_mark()
        self._unsynced[host.name] = None
        ask(host, leave_mark_script(host.data_dir, mark))
        self._unsynced[host.name] = mark

    def look_after_cut(self, host: Host, *, writable: bool) -> Evidence:
        """The marks that survived the last cut; then writes the marks for the next one, if the disk is `writable`.
        Empty without a cut since the last call.

        Raises `HostError`."""
        if host.name not in self._unsynced:
            return Evidence("confirmed", {})
        answer = ask(host, read_marks_script(host.data_dir, self._looks), timeout_s=self._looks / 10 + 10)
        unsynced = self._unsynced.pop(host.name)
        is_kept = answer.get("synced") == self._synced[host.name]
        detail: dict[str, Any] = {
            "synced_mark": "kept" if is_kept else "LOST",
            "unsynced_mark": _fate(unsynced, answer.get("unsynced")),
        }
        status: Status = "confirmed" if is_kept else "mismatch"
        if not writable:
            return Evidence(status, detail)
        try:
            self.renew(host)
        except HostError as error:
            # A host without marks proves nothing at the next cut; that must not hide the evidence of this one.
            self._synced.pop(host.name)
            return Evidence(worst([status, "inconclusive"]), {**detail, "marks": str(error)})
        return Evidence(status, detail)


def _fate(mark: str | None, content: str | None) -> str:
    return "not written" if mark is None else "kept" if content == mark else "lost"


_NOT_LOST = "the cut should lose its unsynced data, but all of it had been written back before"
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Power(Mechanism):
    """The power of all hosts, and what their disks keep after a cut."""

    stage = 20
    part = "power"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._marks = Marks(site)
        self._at_stake = AtStake()
        self._boot_before: dict[str, str] = {}

    def arm(self) -> Evidence | None:
        """Write a synced mark on every host, which must survive every cut."""
        if self.site.power is None:
            return None
        return combine(on_each(self.site, self.site.hosts, self._marks.renew))

    def after_new_disk(self, host: Host) -> Evidence | None:
        return None if self.site.power is None else self._marks.renew(host)

    def cut(self, fault: Fault) -> Evidence:
        power = required(self.site.power, "this world has no power switch")
        self.prepare(fault.targets)
        if (pattern := fault.parameters.get("loses")) is not None:
            noted = combine(on_each(self.site, fault.targets, lambda host: self._note(host, pattern)))
            if not noted.confirmed:
                return noted
        lost = power.cut(fault.targets, fault.parameters.get("tear"))
        return combine(
            on_each(self.site, fault.targets, lambda host: self._silent(host, power, lost.get(host.name, {})))
        )

    def restore(self, fault: Fault) -> Evidence:
        power = required(self.site.power, "this world has no power switch")
        self.in_force.booted |= {name for name in fault.targets if not power.is_on(name)}
        booted = power.restore(fault.targets)
        proofs = on_each(self.site, fault.targets, lambda host: self._back(host, booted.get(host.name, {})))
        evidence = combine(proofs)
        stakes = {name: part.detail["kept"] for name, part in proofs.items() if part.detail.get("at_stake") == "kept"}
        if not stakes:
            return evidence
        because = [f"{name}: its disk kept all of {', '.join(files)}: {_NOT_LOST}" for name, files in stakes.items()]
        return Evidence(evidence.status, {**evidence.detail, "because": because})

    def heal_all(self) -> Evidence | None:
        return None if self.site.power is None else switch_on(self.site, self.site.power)

    def prepare(self, targets: Collection[str]) -> None:
        """Read the boot ids of the hosts that answer, and write an unsynced mark on them; for a host without power, the
        earlier notes stay."""

        def note(host: Host) -> Evidence:
            self._boot_before[host.name] = read_boot_id(host)
            self._marks.leave_unsynced(host)
            return Evidence("confirmed", {})

        on_each(self.site, targets, note)

    def _note(self, host: Host, pattern: str) -> Evidence:
        self._at_stake.note(host, pattern)
        return Evidence("confirmed", {})

    def _silent(self, host: Host, power: PowerSwitch, lost: dict[str, Any]) -> Evidence:
        answers = self.site.answers(host)
        off = not power.is_on(host.name)
        return Evidence("confirmed" if off and not answers else "mismatch", {**lost, "off": off, "answers": answers})

    def _back(self, host: Host, booted: dict[str, Any]) -> Evidence:
        boot_id, old_id = read_boot_id(host), self._boot_before.get(host.name)
        is_writable = not self.in_force.hiding(host.name, {"disk"})
        marks = guarded(lambda host: self._marks.look_after_cut(host, writable=is_writable), host)
        at_stake = guarded(self._at_stake.look_after_cut, host)  # before the service starts and repairs its files
        service = start_and_verify(host, self.site, self.in_force)
        boot: Status = "inconclusive" if old_id is None else "mismatch" if boot_id == old_id else "confirmed"
        detail = {"boot_id_before": old_id, "boot_id": boot_id, **booted, **marks.detail, **at_stake.detail}
        statuses = [boot, marks.status, at_stake.status, service.status]
        return Evidence(worst(statuses), {**detail, "service": service.detail})


def switch_on(site: Site, power: PowerSwitch) -> Evidence:
    """Every host has power and answers, with any boot id."""
    dark = [name for name in site.hosts if not power.is_on(name)]
    booted = power.restore(dark)
    still_dark = [name for name in dark if not power.is_on(name)]
    return Evidence("mismatch" if still_dark else "confirmed", {"booted": booted, "still_off": still_dark})


def read_boot_id(host: Host) -> str:
    """The kernel's id of the current boot. Raises `HostError` when it cannot be read."""
    result = host.run(f"cat {BOOT_ID}")
    if not result.ok or not result.stdout.strip():
        raise HostError(f"{host.name}: {BOOT_ID} cannot be read: {result.stderr.strip()}")
    return result.stdout.strip()


class PowerLossKind(Kind[Power]):
    """Evidence: the switch is off and the host does not answer; healed: the boot id has changed, the synced mark
    exists, the service runs."""

    group = FaultGroup.POWER
    destroys = frozenset({Damage.PROGRESS, Damage.MEMORY, Damage.UNSYNCED})
    action = (
        "namespaces: link down, filesystem shut down without flushing, every process killed, disk mounted again; "
        "virtual machines: the hypervisor's process killed, unflushed disk writes removed; inventory: its power "
        "command"
    )
    proven_by = (
        "the node does not answer; later it has another boot id; a synced mark on the disk survives (`synced_mark: "
        "kept`). An unsynced mark, written just before the cut, should be lost (`unsynced_mark: lost`): this "
        "distinguishes a power loss from a clean stop"
    )
    service = "ended"
    seen = (EvidenceRule("off", values=(True,)), EvidenceRule("answers", values=(False,)))
    healed = (
        EvidenceRule("boot_id", differs_from="boot_id_before"),
        EvidenceRule("synced_mark", values=("kept",)),
        EvidenceRule("service.port", values=("open",), unless="service.withheld_by"),
    )
    hides = frozenset({"machine", "process"})
    heal_rests_on = frozenset()
    mechanism = Power
    needs = frozenset[Need]({"power"})
    parameters: ClassVar[tuple[Parameter | Choice | Files, ...]] = (
        Choice("tear", "write back some dirty pages first, as a failing machine may (chosen by a seed)", scripted=True),
    )
    proven_late = True
    healed_by = "power-on"

    def check(self, parameters: Mapping[str, Any]) -> None:
        super().check(parameters)
        if parameters.get("loses") is not None and parameters.get("tear") is not None:
            raise ParameterError("loses", "a cut that tears may keep anything; leave tear out")

    def inject(self, by: Power, fault: Fault) -> Evidence:
        return by.cut(fault)

    def heal(self, by: Power, fault: Fault) -> Evidence:
        return by.restore(fault)

    def draw(self, drawn: RandomDraw) -> dict[str, Any]:
        return {"tear": drawn.tear}

    def sentence(self, fault: Fault) -> str:
        verb, together = ("loses", "") if len(fault.targets) == 1 else ("lose", " at the same moment")
        fate = (
            "unsynced pages are lost"
            if fault.parameters.get("tear") is None
            else "unsynced pages reach the disk partly"
        )
        return f"{listed(fault.targets)} {verb} power{together}; {fate}"

    def proof(self, effect: Facts, heal: Facts) -> str:
        nodes = node_facts(effect)
        booted = {name: facts_of(heal, name) for name in nodes if "boot_id" in facts_of(heal, name)}
        restarted = [name for name, facts in booted.items() if facts["boot_id"] != facts.get("boot_id_before")]
        phrases = [f"another boot id on {listed(restarted)}" if booted else f"no power on {listed(list(nodes))}"]
        for fact, phrase in (("pages_dropped", "dirty pages lost"), ("writes_lost", "unflushed disk writes lost")):
            counts = [int(facts[fact] or 0) for facts in nodes.values() if fact in facts]
            if any(counts) or (counts and fact == "pages_dropped"):
                phrases.append(f"{sum(counts)} {phrase}")
        marks = [facts_of(heal, name) for name in nodes if "synced_mark" in facts_of(heal, name)]
        fates = {name: facts_of(heal, name).get("at_stake") for name in nodes}
        phrases += [f"what was at stake on {name}: {fate}" for name, fate in fates.items() if fate is not None]
        if marks:
            kept_count = sum(mark["synced_mark"] == "kept" for mark in marks)
            lost = sum(mark.get("unsynced_mark") == "lost" for mark in marks)
            phrases.append(f"marks: {kept_count} of {len(marks)} synced kept, {lost} of {len(marks)} unsynced lost")
        return "; ".join(phrases)
