"""The store of remote segments, a directory that all nodes share: it is away, read-only or full for a node, or one of
its objects is missing, cut or corrupt, or the objects of a segment are those of another one.

Theory of operation. What a node sees of the directory is changed by a mount on top of it in the node's own mount
namespace, so the other nodes see the store as before. The mounts of several faults are stacked. The heal of
the topmost removes its mount; the heal of another one removes the mounts down to its own and makes the others again. An
object is changed in the directory itself, for all nodes, and no two faults change the same one. The original is kept
beside the objects, in a directory of its fault in `.brownout-aside`, and the heal puts it back, unless the cluster has
deleted the segment meanwhile. A power cut removes a node's mounts, and no object. The simulated store has no directory:
it changes its objects itself (`nemeses.ports.Objects`).
"""

import shlex
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, NamedTuple

from history.damage import Damage
from history.fault_looks import FaultGroup
from history.journal.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault, Status, combine, worst
from nemeses.in_force import InForce
from nemeses.kind import Facts, Kind, node_facts
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import on_each
from nemeses.mechanisms.shell import ask
from nemeses.ports import Host, Site

ASIDE = ".brownout-aside"
LACKING = "the system of this run has no store in a directory that its nodes share"
_LONGEST_S = 30.0
_UPLOAD_S = 10.0
"""How long a fault of an object waits for the first one, in seconds on an ordinary machine."""
_AGAIN_S = 0.25

_OBJECTS = f"find . -name '*.log' -not -path './{ASIDE}/*' 2>/dev/null | sort"
_PROBE = f"""
export LC_ALL=C
cd "$store" || exit
echo "objects=$(($({_OBJECTS} | wc -l)))"
probe=.brownout-probe-$$
if error=$( (head -c 65536 /dev/zero > $probe) 2>&1 ); then echo write=done; else
  case $error in *"Read-only"*) echo write=EROFS;; *"No space"*) echo write=ENOSPC;; *) echo "write=$error";; esac
fi
rm -f $probe
"""
"""The number of objects that the node sees, and what a write of 64 KiB to the store results in."""

COVERS = {
    "away": 'mount -t tmpfs -o ro,size=4k tmpfs "$store"',
    "read-only": 'mount --bind "$store" "$store" && mount -o remount,bind,ro "$store"',
    "full": """top=$(mktemp -d /run/brownout-store.XXXXXX) && mount -t tmpfs -o size=64k,nr_inodes=64 tmpfs "$top" &&
mkdir "$top/upper" "$top/work" &&
mount -t overlay overlay -o "lowerdir=$store,upperdir=$top/upper,workdir=$top/work" "$store"
made=$?
echo "$top" >> /run/brownout-store-tops
head -c 65536 /dev/zero > "$top/fill" 2>/dev/null
for number in $(seq 64); do touch "$top/fill$number" 2>/dev/null || break; done
[ $made = 0 ]""",
}
"""The mounts on the store's directory, as shell commands. `full`: writes go to a full filesystem, reads to the
store."""
_WRITES = {"away": "EROFS", "read-only": "EROFS", "full": "ENOSPC"}
"""What a write to the store then results in."""

_UNCOVER = """
above() { awk -v at="$store" '$5 == at' /proc/self/mountinfo | wc -l; }
removed=0
while [ $(($(above))) -gt "$remaining" ]; do umount -l "$store" || exit; removed=$((removed + 1)); done
if [ "$remaining" = 1 ] && [ -e /run/brownout-store-tops ]; then
  while read -r top; do umount -l "$top"; rmdir "$top"; done < /run/brownout-store-tops
  rm /run/brownout-store-tops
fi
echo "removed=$removed"
"""
"""Remove the mounts on the store's directory down to `remaining` ones: 1 is the store's own. Without one, the full
filesystems are removed, too."""
_TAKE = f"""
cd "$store" || exit
all=$({_OBJECTS})
intact=$(echo "$all" | grep -Fxv "$(cat {ASIDE}/*/name 2>/dev/null)")
[ -n "$intact" ] || {{ echo absent=yes; exit 0; }}
object=$(echo "$intact" | sed -n "$((seed % $(echo "$intact" | wc -l) + 1))p")
segment=${{object%.log}}
base=$(basename "$object") && base=${{base%%-*}}
others=$(echo "$all" | grep -Fxv "$object")
other=$(echo "$others" | grep -F "/$base-" | head -n 1)
[ -n "$other" ] || other=$(echo "$others" | head -n 1)
changed=$object
if [ "$how" = replaced ]; then
  [ -n "$other" ] || {{ echo absent=yes; exit 0; }}
  changed=$(ls "$segment".*)
fi
digest() {{ sha256sum < "$1" 2>/dev/null | cut -c1-64; }}
size=$(($(wc -c < "$object")))
mkdir -p {ASIDE}/$change/objects && cp $changed {ASIDE}/$change/objects && echo "$object" > {ASIDE}/$change/name || exit
echo "object=$object"
echo "size=$size"
echo "before=$(digest "$object")"
"""
CHANGES = {
    "missing": 'rm "$object"',
    "cut": 'dd if=/dev/null of="$object" bs=1 seek=$((size / 2)) 2>/dev/null',
    "corrupt": 'printf %s brownout-corrupt | dd of="$object" bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null',
    "replaced": 'for own in $changed; do cp "${other%.log}.${own##*.}" "$own" 2>/dev/null || rm "$own"; done',
}
"""What is done to an object that no other fault has changed, or to all objects of its segment, as shell commands."""
_AFTER_CHANGE = """
[ -e "$object" ] && echo "after=$(digest "$object")" || echo after=missing
"""
_PUT_BACK = f"""
cd "$store" || exit
aside={ASIDE}/$change
[ -e "$aside" ] || {{ echo restored=nothing; exit 0; }}
object=$(cat "$aside/name")
if ls "${{object%.log}}".* >/dev/null 2>&1; then
  cp "$aside"/objects/* "$(dirname "$object")" && echo "restored=$object" || exit
else
  echo restored=deleted
fi
[ -e "$object" ] && echo "digest=$(sha256sum < "$object" | cut -c1-64)"
rm -r "$aside"; rmdir {ASIDE} 2>/dev/null || true
"""


class _Cover(NamedTuple):
    """A fault that changes what a host sees: its kind, and one of `COVERS`."""

    kind: str
    how: str


class _Change(NamedTuple):
    """A fault that has changed an object: the name of the directory with the original (in the simulation, the reason of
    the change), and the original's digest."""

    fault: Fault
    name: str
    digest: str


class StoreTroubles(Mechanism):
    """The store as each host sees it, and its objects."""

    stage = 75
    part = "store"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._covers = InForce[_Cover]()
        self._changes: list[_Change] = []
        self._made = 0
        self._used = False

    def cover(self, targets: Collection[str], kind: str, effect: str) -> Evidence:
        """Change what these hosts see of the store (one of `COVERS`), and check that with a probe."""

        def act(host: Host) -> Evidence:
            self._covers.add(host.name, _Cover(kind, effect))
            return self._put_on(host, effect)

        return self._on_each(targets, act)

    def uncover(self, targets: Collection[str], kind: str, effect: str) -> Evidence:
        """End one fault on each of these hosts, and check that they see all objects and can write, or what the
        remaining faults say."""

        def act(host: Host) -> Evidence:
            covers = self._covers.on(host.name)
            self._covers.end(host.name, _Cover(kind, effect))
            return self._take_off(host, covers)

        return self._on_each(targets, act)

    def after_boot(self, host: Host) -> Evidence | None:
        covers = self._covers.on(host.name)
        evidence = [self._put_on(host, cover.how) for cover in covers]
        return Evidence(worst(part.status for part in evidence), evidence[-1].detail) if evidence else None

    def _put_on(self, host: Host, effect: str) -> Evidence:
        probe = self._probe(host)
        answer = self._ask(host, f"( {COVERS[effect]} ) || exit\n{_PROBE}")
        detail = {"objects_before": int(probe["objects"]), "objects": int(answer["objects"]), "write": answer["write"]}
        as_wanted = answer["write"] == _WRITES[effect] and (detail["objects"] == 0) >= (effect == "away")
        return Evidence("confirmed" if as_wanted else "mismatch", detail)

    def _take_off(self, host: Host, covers: Sequence[_Cover]) -> Evidence:
        """Remove the mounts of the faults that have ended; `covers`: the faults in force before."""
        remaining = self._covers.on(host.name)
        lowest = len([1 for cover, kept_cover in zip(covers, remaining, strict=False) if cover == kept_cover])
        removed = self._ask(host, f"remaining={1 + lowest}\n{_UNCOVER}")
        renewed = [self._put_on(host, cover.how) for cover in remaining[lowest:]]
        answer = self._probe(host)
        detail: dict[str, Any] = {**removed, "objects": int(answer["objects"]), "write": answer["write"]}
        expected = "done"
        if remaining:
            expected, detail["covered_by"] = _WRITES[remaining[-1].how], remaining[-1].kind
        status: Status = "confirmed" if answer["write"] == expected else "mismatch"
        return Evidence(worst([status, *(evidence.status for evidence in renewed)]), detail)

    def change(self, fault: Fault, effect: str) -> Evidence:
        """Change an object of the store (one of `CHANGES`), through the fault's first target."""

        def act(host: Host) -> Evidence:
            self._made += 1
            answer, change = self._changed(host, fault, effect)
            deadline_s = self.site.scheduler.monotonic() + _UPLOAD_S * self.site.time_scale
            while "object" not in answer and not self._changes and self.site.scheduler.monotonic() < deadline_s:
                self.site.scheduler.sleep(_AGAIN_S)  # a random schedule may start before the first upload
                answer, change = self._changed(host, fault, effect)
            if "object" not in answer:
                if self._changes:
                    return Evidence("prevented", {**answer, "prevented_by": self._changes[-1].fault.kind})
                return Evidence("inconclusive", {**answer, "error": "the store has no object to change"})
            self._changes.append(_Change(fault, change, answer["before"]))
            changed = (
                answer["after"] == "missing"
                if effect == "missing"
                else answer["after"] not in (answer["before"], "missing")
            )
            return Evidence("confirmed" if changed else "mismatch", {**answer, "size": int(answer["size"])})

        return self._on_each(fault.targets[:1], act)

    def _changed(self, host: Host, fault: Fault, effect: str) -> tuple[dict[str, str], str]:
        """What the change of an object results in, and its name."""
        seed = int(fault.parameters.get("replaced") or 0)
        if self.site.objects is not None:
            reason = f"{fault.kind} {effect}-{self._made}"
            return self.site.objects.under(reason).damage(effect, seed), reason
        change = f"{effect}-{self._made}"
        script = f"change={change}\nhow={effect}\nseed={seed}\n{_TAKE}{CHANGES[effect]}\n{_AFTER_CHANGE}"
        return self._ask(host, script), change

    def put_back(self, fault: Fault) -> Evidence:
        """Put the changed object of a fault back, and check its digest."""
        identical = [change for change in self._changes if change.fault is fault]
        return self._put_back(
            fault.targets[:1], identical or [change for change in self._changes if change.fault == fault]
        )

    def _put_back(self, targets: Collection[str], changes: Sequence[_Change]) -> Evidence:
        """Put the object of the last one of these changes back."""
        change = changes[-1] if changes else _Change(Fault("", ()), "none", "")

        def act(host: Host) -> Evidence:
            objects = self.site.objects
            answer = (
                self._ask(host, f"change={change.name}\n{_PUT_BACK}")
                if objects is None
                else objects.under(change.name).put_back()
            )
            is_whole = answer["restored"] == "deleted" or answer.get("digest", "") == change.digest
            return Evidence("confirmed" if is_whole else "mismatch", dict(answer))

        if changes:
            self._changes.remove(change)
        return self._on_each(targets, act)

    def heal_all(self) -> Evidence | None:
        """The directory and the mounts belong to one run: without a fault of this run there is nothing to heal."""
        if not self._used:
            return None

        def uncover(host: Host) -> Evidence:
            covers = self._covers.on(host.name)
            self._covers.end_all(host.name)
            return self._take_off(host, covers)

        covered = [name for name in self.site.hosts if self._covers.on(name)]
        healed = {"mounts": self._on_each(covered, uncover)} if covered else {}
        for change in list(self._changes):
            healed[change.name] = self._put_back(list(self.site.hosts)[:1], [change])
        return combine(healed) if healed else Evidence("confirmed", {})

    def _on_each(self, targets: Collection[str], act: Callable[[Host], Evidence]) -> Evidence:
        if not self.site.store_dir and self.site.objects is None:
            return Evidence("inconclusive", {"error": LACKING})
        self._used = True
        return combine(on_each(self.site, targets, act))

    def _probe(self, host: Host) -> dict[str, str]:
        return self._ask(host, _PROBE)

    def _ask(self, host: Host, script: str) -> dict[str, str]:
        return ask(host, f"store={shlex.quote(self.site.store_dir)}\n{script}", timeout_s=_LONGEST_S)


class StoreKind(Kind[StoreTroubles]):
    """A kind of fault of the store. The nodes' services continue."""

    group = FaultGroup.STORE
    mechanism = StoreTroubles
    needs_service = False


class CoveringKind(StoreKind):
    """The store is different for one node; the other nodes see it as before."""

    needs = frozenset({"store", "mounts"})
    hides = frozenset({"store"})
    destroys = frozenset({Damage.SPEED})
    healed = (EvidenceRule("write", values=("done",), unless="covered_by"),)
    healed_by = "restore-store"
    cover: ClassVar[str]

    def inject(self, by: StoreTroubles, fault: Fault) -> Evidence:
        return by.cover(fault.targets, self.name, self.cover)

    def heal(self, by: StoreTroubles, fault: Fault) -> Evidence:
        return by.uncover(fault.targets, self.name, self.cover)

    def proof(self, effect: Facts, heal: Facts) -> str:
        del heal
        return "; ".join(f"{name} sees {_told(facts)}" for name, facts in node_facts(effect).items())


class ObjectKind(StoreKind):
    """An object of the store is different, for all nodes.

    Evidence: the digest of the object before, during and after the fault. The target is the node through which the
    store is changed. `change`: one of `CHANGES`; `state`: how the object is then, as the rest of a sentence."""

    needs = frozenset({"store"})
    rests_on = heal_rests_on = frozenset({"machine", "store"})
    healed_by = "restore-object"
    destroys = frozenset({Damage.SPEED})
    seen = (EvidenceRule("size", least=1), EvidenceRule("after", unlike=("missing",), differs_from="before"))
    healed = (EvidenceRule("restored", unlike=("nothing",)),)
    aim = "leader"
    change: ClassVar[str]
    state: ClassVar[str]

    def sentence(self, fault: Fault) -> str:
        del fault
        return f"the first object of the store {self.state}, for all nodes"

    def inject(self, by: StoreTroubles, fault: Fault) -> Evidence:
        return by.change(fault, self.change)

    def heal(self, by: StoreTroubles, fault: Fault) -> Evidence:
        return by.put_back(fault)

    def proof(self, effect: Facts, heal: Facts) -> str:
        del heal
        return "; ".join(
            f"{facts.get('object')} of {facts.get('size')} bytes is {self.change}"
            for facts in node_facts(effect).values()
        )


def _told(facts: Facts) -> str:
    """What a probe saw, for a sentence."""
    return f"{facts.get('objects')} objects, {facts.get('objects_before')} before; a write: {facts.get('write')}"
