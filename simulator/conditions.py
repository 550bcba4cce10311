"""Parameters of the simulated network and disks without faults. Times in seconds, sizes in bytes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Conditions:
    """The defaults are those of a small local network and ordinary disks."""

    latency: tuple[float, float] = (0.000_1, 0.000_6)
    spike_probability: float = 0.005
    spike: tuple[float, float] = (0.002, 0.030)
    split_probability: float = 0.02
    """How often what arrives together is received in two pieces."""
    window: int = 256 * 1024
    """What a connection takes before its receiver has read any of it."""
    unacknowledged: int = 64 * 1024
    """What still arrives while the acknowledgements are cut off."""
    retransmission_s: float = 0.2
    """The first pause of a sender that hears nothing; each further one is twice as long."""
    retransmission_max_s: float = 120.0
    handshake_timeout_s: float = 127.0
    """How long a connection is tried while no answer comes."""
    unreachable_after_s: float = 3.0
    """How long a connection attempt to a machine without power takes to fail (no ARP answer)."""
    reset_after_partition: float = 0.1
    """How often a connection that stalled in a partition is reset when it heals, as a firewall in between would."""
    deaths_end_in_order: bool = False
    """Whether the kernel ends the connections of a dead process in order where it had read all input, as Linux does;
    else it resets them, as Linux does where some input was unread."""
    sync_latency_s: tuple[float, float] = (0.000_3, 0.002)
    sync_spike_probability: float = 0.01
    sync_spike_s: tuple[float, float] = (0.010, 0.080)
