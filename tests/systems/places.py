"""Places as systems see them, of no world."""

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
