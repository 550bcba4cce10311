"""The tested system of a campaign, as each of its cells configures it."""

from collections.abc import Callable, Collection

from orchestrator.campaign.model import Campaign, Cell
from orchestrator.campaign.plan import PlannedRun
from orchestrator.campaign.steps import RunStep
from systems import Deployed, InputError, Software, System, load_system, merge, rehearse, rehearse_command


def system_of(campaign: Campaign, cell: Cell) -> System:
    """Raises `InputError`."""
    asked = campaign.system
    return load_system(asked.name, version=cell.version or asked.version, directory=asked.directory)


def prepare_systems(campaign: Campaign, cells: Collection[str], on_progress: Callable[[str], None]) -> None:
    """Check that this machine has what these cells' systems need; no cells: all of them. Raises `InputError`."""
    for system in _systems_of(campaign, cells):
        system.prepare(on_progress)


def rehearse_systems(campaign: Campaign, cells: Collection[str]) -> None:
    """Check that the nodes' commands and files of these cells (default: all) can be rendered. Raises `InputError`.

    Only services of user-defined systems are checked: templates of the others may need files that are not fetched yet.
    """
    for cell in campaign.cells:
        if not cells or cell.name in cells:
            deployed = deployed_as(campaign, cell, cluster_id="rehearsal")
            if deployed.system.description.own_directory:
                rehearse(deployed)
            for step in campaign.nemesis.steps:
                if isinstance(step, RunStep):
                    try:
                        rehearse_command(deployed, step.command)
                    except InputError as error:
                        raise InputError(f"{campaign.path}: {step.title}: {error}") from error


def software_of(campaign: Campaign, cells: Collection[str] = ()) -> tuple[Software, ...]:
    """The software that machines need for these cells (default: all), each version once. Raises `InputError`."""
    return tuple(
        Deployed(each, roles_of(campaign, each), cluster_id="").software for each in _systems_of(campaign, cells)
    )


def programs_of(campaign: Campaign, cells: Collection[str]) -> dict[str, str]:
    """Programs of this machine that these cells' systems need, each with its Debian package."""
    return {
        name: package
        for each in _systems_of(campaign, cells)
        for name, package in each.description.machine.programs.items()
    }


def _systems_of(campaign: Campaign, cells: Collection[str]) -> list[System]:
    """The distinct systems of these cells; no cells: of all."""
    wanted = [system_of(campaign, cell) for cell in campaign.cells if not cells or cell.name in cells]
    return list({(system.name, system.version): system for system in wanted}.values())


def roles_of(campaign: Campaign, system: System) -> tuple[str, ...]:
    """Each node's role, by number. Raises `InputError`."""
    return system.assign_roles(campaign.topology.nodes, campaign.system.roles)


def client_nodes(campaign: Campaign, system: System) -> tuple[int, ...]:
    """The numbers of the nodes that serve clients and store the data."""
    roles = roles_of(campaign, system)
    return tuple(number for number, role in enumerate(roles, 1) if system.description.roles[role].serves_clients)


def deploy(planned: PlannedRun, *, repeatable: bool = False) -> Deployed:
    """What runs on the nodes of a run. Raises `InputError`. A cluster has its run's name, so that leftovers of another
    run are recognized; a `repeatable` run, in a world that leaves nothing behind, has the same name each time."""
    name = f"{planned.cell.name}-{planned.seed}" if repeatable else planned.id
    return deployed_as(planned.campaign, planned.cell, cluster_id=f"brownout-{name}")


def deployed_as(campaign: Campaign, cell: Cell, cluster_id: str) -> Deployed:
    """What runs on the nodes of a cell, in a cluster with this name. Raises `InputError`."""
    system = system_of(campaign, cell)
    return Deployed(
        system,
        roles_of(campaign, system),
        cluster_id=cluster_id,
        settings=merge(campaign.settings, cell.settings),
        mutants=cell.mutants,
    )
