"""The store of remote segments, a directory that all nodes share: it is away, read-only or full for a node, or one of
its objects is missing, cut or corrupt.

Theory of operation. What a node sees of the directory is changed by a mount on top of it in the node's own mount
namespace, so the other nodes see the store as before; the heal removes the mounts. An object is changed in the
directory itself, for all nodes. The original is kept beside the objects, in `.brownout-aside`, and the heal puts it
back. A power cut removes a node's mounts, and no object.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection
from typing import ClassVar

from history.damage import Damage
from history.fault_looks import FaultGroup
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault, combine
from nemeses.kind import Facts, Kind, node_facts
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import on_each
from nemeses.mechanisms.shell import ask
from nemeses.ports import Host, Site

ASIDE = ".brownout-aside"
LACKING = "the system of this run has no store in a directory that its nodes share"
_LONGEST_S = 30.0

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
head -c 65536 /dev/zero > "$top/fill" 2>/dev/null
for number in $(seq 64); do touch "$top/fill$number" 2>/dev/null || break; done
[ $made = 0 ]""",
}
"""The mounts on the store's directory, as shell commands. `full`: writes go to a full filesystem, reads to the
store."""

_UNCOVER = """
above() { awk -v at="$store" '$5 == at' /proc/self/mountinfo | wc -l; }
removed=0
while [ $(($(above))) -gt 1 ]; do umount -l "$store" || exit; removed=$((removed + 1)); done
echo "removed=$removed"
"""
_TAKE = f"""
cd "$store" || exit
[ -e {ASIDE} ] && {{ echo busy=yes; exit 0; }}
object=$({_OBJECTS} | head -n 1)
[ -n "$object" ] || {{ echo absent=yes; exit 0; }}
digest() {{ sha256sum < "$1" 2>/dev/null | cut -c1-64; }}
size=$(($(wc -c < "$object")))
mkdir {ASIDE} && cp "$object" {ASIDE}/object && echo "$object" > {ASIDE}/name || exit
echo "object=$object"
echo "size=$size"
echo "before=$(digest "$object")"
"""
CHANGES = {
    "missing": 'rm "$object"',
    "cut": 'dd if=/dev/null of="$object" bs=1 seek=$((size / 2)) 2>/dev/null',
    "corrupt": 'printf %s brownout-corrupt | dd of="$object" bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null',
}
"""What is done to the first object, as shell commands."""
_AFTER_CHANGE = """
[ -e "$object" ] && echo "after=$(digest "$object")" || echo after=missing
"""
_PUT_BACK = f"""
cd "$store" || exit
[ -e {ASIDE} ] || {{ echo restored=nothing; exit 0; }}
object=$(cat {ASIDE}/name) && mkdir -p "$(dirname "$object")" && cp {ASIDE}/object "$object" || exit
echo "restored=$object"
echo "digest=$(sha256sum < "$object" | cut -c1-64)"
rm -r {ASIDE}
"""


class StoreTroubles(Mechanism):
    """The store as each host sees it, and its objects."""

    stage = 75
    part = "store"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._seen: dict[str, int] = {}  # the number of objects before, by host
        self._digests: dict[str, str] = {}  # of the changed object before, by host
        self._used = False

    def cover(self, targets: Collection[str], how: str) -> Evidence:
        """Change what these hosts see of the store (one of `COVERS`), and check that with a probe."""
        wanted = {"away": "EROFS", "read-only": "EROFS", "full": "ENOSPC"}[how]

        def act(host: Host) -> Evidence:
            before = self._probe(host)
            seen = self._ask(host, f"( {COVERS[how]} ) || exit\n{_PROBE}")
            self._seen[host.name] = int(before["objects"])
            detail = {"objects_before": int(before["objects"]), "objects": int(seen["objects"]), "write": seen["write"]}
            as_wanted = seen["write"] == wanted and (detail["objects"] == 0) >= (how == "away")
            return Evidence("confirmed" if as_wanted else "mismatch", detail)

        return self._on_each(targets, act)

    def uncover(self, targets: Collection[str]) -> Evidence:
        """Let these hosts see the store again, and check that they see all objects and can write."""

        def act(host: Host) -> Evidence:
            removed = self._ask(host, _UNCOVER)
            seen = self._probe(host)
            detail = {"removed": int(removed["removed"]), "objects": int(seen["objects"]), "write": seen["write"]}
            return Evidence("confirmed" if seen["write"] == "done" else "mismatch", detail)

        return self._on_each(targets, act)

    def change(self, targets: Collection[str], how: str) -> Evidence:
        """Change the first object of the store (one of `CHANGES`), through each of these hosts in turn."""

        def act(host: Host) -> Evidence:
            seen = self._ask(host, f"{_TAKE}{CHANGES[how]}\n{_AFTER_CHANGE}")
            if "object" not in seen:
                return Evidence("inconclusive", {**seen, "error": "the store has no object to change"})
            self._digests[host.name] = seen["before"]
            changed = (
                seen["after"] == "missing" if how == "missing" else seen["after"] not in (seen["before"], "missing")
            )
            return Evidence("confirmed" if changed else "mismatch", {**seen, "size": int(seen["size"])})

        return self._on_each(targets, act)

    def put_back(self, targets: Collection[str]) -> Evidence:
        """Put the changed object back, and check its digest."""

        def act(host: Host) -> Evidence:
            seen = self._ask(host, _PUT_BACK)
            wanted = self._digests.pop(host.name, None)
            return Evidence("confirmed" if wanted in (None, seen.get("digest")) else "mismatch", dict(seen))

        return self._on_each(targets, act)

    def heal_all(self) -> Evidence | None:
        """The directory and the mounts belong to one run: without a fault of this run there is nothing to heal."""
        if not self._used:
            return None
        return combine({"mounts": self.uncover(self.site.hosts), "objects": self.put_back(self.site.hosts)})

    def _on_each(self, targets: Collection[str], act: Callable[[Host], Evidence]) -> Evidence:
        if not self.site.store_dir:
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
    healed_by = "restore-store"
    cover: ClassVar[str]

    def inject(self, by: StoreTroubles, fault: Fault) -> Evidence:
        return by.cover(fault.targets, self.cover)

    def heal(self, by: StoreTroubles, fault: Fault) -> Evidence:
        return by.uncover(fault.targets)

    def proof(self, seen: Facts, after: Facts) -> str:
        del after
        return "; ".join(f"{name} sees {_told(facts)}" for name, facts in node_facts(seen).items())


class ObjectKind(StoreKind):
    """An object of the store is different, for all nodes.

    Evidence: the digest of the object before, during and after the fault. The target is the node through which the
    store is changed. `change`: one of `CHANGES`; `state`: how the object is then, as the rest of a sentence."""

    needs = frozenset({"store"})
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
        return by.change(fault.targets[:1], self.change)

    def heal(self, by: StoreTroubles, fault: Fault) -> Evidence:
        return by.put_back(fault.targets[:1])

    def proof(self, seen: Facts, after: Facts) -> str:
        del after
        return "; ".join(
            f"{facts.get('object')} of {facts.get('size')} bytes is {self.change}"
            for facts in node_facts(seen).values()
        )


def _told(facts: Facts) -> str:
    """What a probe saw, for a sentence."""
    return f"{facts.get('objects')} objects, {facts.get('objects_before')} before; a write: {facts.get('write')}"
