"""The two networks of virtual machines: eth0 for SSH, eth1 for brokers, each on a bridge in the sandbox.

The Vagrantfile has the same addresses and names.
"""

from collections.abc import Iterable

CONTROL = "brownout-control"
DATA = "brownout-data"
BRIDGES = {CONTROL: "br-control", DATA: "br-data"}
MAX_NODES = 100


def control_address(number: int) -> str:
    """The SSH address of the node with this number (from 1); the same in every sandbox."""
    return f"192.168.121.{10 + number}"


def data_address(number: int) -> str:
    """The address that the node's broker listens on."""
    return f"10.77.0.{10 + number}"


def neighbours(numbers: Iterable[int]) -> list[str]:
    """Every node's hardware address on each bridge, in `ip neigh` syntax."""
    return [
        f"{address(number)} lladdr {_mac(network, number)} dev {BRIDGES[network]}"
        for number in numbers
        for network, address in ((CONTROL, control_address), (DATA, data_address))
    ]


def _mac(network: str, number: int) -> str:
    return f"52:54:00:62:{'6d' if network == CONTROL else '6e'}:{number:02x}"


def definitions(numbers: Iterable[int]) -> list[str]:
    """Both networks for libvirt, without forwarding and name resolution.

    Vagrant learns a machine's address from a DHCP lease, so the control network gives each a fixed one. It does not
    probe whether the address is in use: that takes seconds, and machines that boot together would get no address."""
    hosts = "".join(f"<host mac='{_mac(CONTROL, number)}' ip='{control_address(number)}'/>" for number in numbers)
    return [
        f"""<network xmlns:dnsmasq='http://libvirt.org/schemas/network/dnsmasq/1.0'>
          <name>{CONTROL}</name>
          <bridge name='{BRIDGES[CONTROL]}' stp='off' delay='0'/>
          <dns enable='no'/>
          <ip address='192.168.121.1' netmask='255.255.255.0'>
            <dhcp><range start='192.168.121.201' end='192.168.121.250'/>{hosts}</dhcp>
          </ip>
          <dnsmasq:options>
            <dnsmasq:option value='no-ping'/>
            <dnsmasq:option value='dhcp-rapid-commit'/>
          </dnsmasq:options>
        </network>""",
        f"""<network>
          <name>{DATA}</name>
          <bridge name='{BRIDGES[DATA]}' stp='off' delay='0'/>
          <dns enable='no'/>
          <ip address='10.77.0.1' netmask='255.255.255.0'/>
        </network>""",
    ]
