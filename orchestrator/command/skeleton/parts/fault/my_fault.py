"""A kind of fault: a large file takes space on the disk of a node.

docs/own-faults.md of Brownout (`brownout docs own-faults`) explains each part. A campaign names the class:

    [nemesis]
    kind = "random"
    kinds = ["my_fault.py:MyFault"]
    faults = ["my-fault", "kill"]
"""

from brownout_api import FaultKind, Parameter, TargetNode


class MyFault(FaultKind):
    """Replace the name, the text and the commands by yours."""

    name = "my-fault"  # in campaigns and reports
    text = "a large file takes space on its disk"
    parameters = (Parameter("megabytes", "MB", "the size of the file", least=1, most=10_000, drawn=(1, 64)),)
    # needs_service = True                  it needs a service that runs
    # ends_service = True                   it ends the service, which is started again after the heal
    # may_destroy = ("synced-bytes",)       the damage that the analysis excuses

    def inject(self, node: TargetNode) -> None:
        node.run(f"head -c {round(node.parameters['megabytes'])}M /dev/zero > {self.file(node)}", timeout_s=60)

    def evidence(self, node: TargetNode) -> str | None:
        """Ask the node: a text is evidence that the fault is in force, None that it is not."""
        size = node.run(f"stat -c %s {self.file(node)} 2>/dev/null || true").stdout.strip()
        return f"the file has {size} bytes" if size else None

    def heal(self, node: TargetNode) -> None:
        """Also called on every node before the first fault and at the end, without an `inject`."""
        node.run(f"rm -f {self.file(node)}")

    def file(self, node: TargetNode) -> str:
        return f"{node.data_dir}/my_fault"
