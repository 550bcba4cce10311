"""The system that a campaign tests, as each of its cells has it."""

from __future__ import annotations

from collections.abc import Callable, Collection

from orchestrator.campaign.model import Campaign, Cell
from orchestrator.campaign.plan import PlannedRun
from systems import Deployed, Software, System, load_system, merge, rehearse


def system_of(campaign: Campaign, cell: Cell) -> System:
    """Raises `InputError`."""
    asked = campaign.system
    return load_system(asked.name, version=cell.version or asked.version, directory=asked.directory)


def prepare_systems(campaign: Campaign, cells: Collection[str], on_progress: Callable[[str], None]) -> None:
    """See that what these cells' systems need is on this machine; no cells: all of them. Raises `InputError`."""
    for system in _systems_of(campaign, cells):
        system.prepare(on_progress)


def rehearse_systems(campaign: Campaign, cells: Collection[str]) -> None:
    """See that what the nodes of these cells (none named: all) run can be written down. Raises `InputError`.

    Only a system of the user's own is looked at: the templates of others may need files that are not here yet.
    """
    for cell in campaign.cells:
        if not cells or cell.name in cells:
            deployed = deployed_as(campaign, cell, cluster_id="rehearsal")
            if deployed.system.description.own_directory:
                rehearse(deployed)


def software_of(campaign: Campaign, cells: Collection[str] = ()) -> tuple[Software, ...]:
    """What machines need to run these cells (none named: all), each version once. Raises `InputError`."""
    return tuple(
        Deployed(each, roles_of(campaign, each), cluster_id="").software for each in _systems_of(campaign, cells)
    )


def programs_of(campaign: Campaign, cells: Collection[str]) -> dict[str, str]:
    """The machine's programs that these cells' systems need, each with the Debian package that it comes in."""
    return {
        name: package for each in _systems_of(campaign, cells) for name, package in each.description.programs.items()
    }


def _systems_of(campaign: Campaign, cells: Collection[str]) -> list[System]:
    """Each system of these cells once; no cells: of all."""
    wanted = [system_of(campaign, cell) for cell in campaign.cells if not cells or cell.name in cells]
    return list({(system.name, system.version): system for system in wanted}.values())


def roles_of(campaign: Campaign, system: System) -> tuple[str, ...]:
    """Each node's role, by number. Raises `InputError`."""
    return system.assign_roles(campaign.topology.nodes, campaign.system.roles)


def client_nodes(campaign: Campaign, system: System) -> tuple[int, ...]:
    """The nodes, by number, that serve clients and have the data."""
    roles = roles_of(campaign, system)
    return tuple(number for number, role in enumerate(roles, 1) if system.description.roles[role].serves_clients)


def deploy(planned: PlannedRun, *, repeatable: bool = False) -> Deployed:
    """What runs on the nodes of a run. Raises `InputError`. A cluster has its run's own name, by which what another run
    left is known; where nothing is ever left, a `repeatable` run has the same name each time."""
    name = f"{planned.cell.name}-{planned.seed}" if repeatable else planned.id
    return deployed_as(planned.campaign, planned.cell, cluster_id=f"brownout-{name}")


def deployed_as(campaign: Campaign, cell: Cell, cluster_id: str) -> Deployed:
    """What runs on the nodes of a cell, in a cluster of this name. Raises `InputError`."""
    system = system_of(campaign, cell)
    return Deployed(
        system,
        roles_of(campaign, system),
        cluster_id=cluster_id,
        settings=merge(campaign.settings, cell.settings),
        mutants=cell.mutants,
    )
