"""Places as systems see them, of no world."""

from systems import Deployed
from systems.service import Place


def place(number: int, *, is_local: bool = True) -> Place:
    name = f"n{number}"
    return Place(
        name=name,
        id=number,
        address=f"10.77.0.{number}",
        ports={"client": number},
        data_dir="/data",
        etc_dir="/etc/x",
        var_dir="/var/x",
        is_local=is_local,
    )


def places_of(deployed: Deployed) -> list[Place]:
    """Those of all roles."""
    return [
        Place(
            f"n{number}",
            number,
            f"10.0.0.{number}",
            deployed.ports(number),
            "/data",
            "/etc/b",
            "/var/b",
            files_dir=deployed.files_dir,
        )
        for number in range(1, len(deployed.roles) + 1)
    ]
