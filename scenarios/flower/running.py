"""A run of a Flower app: its ServerApp drives the clock."""

from __future__ import annotations

import traceback
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from netsim.servers.kinds.messages import RunOverError
from netsim.simulation import AppSimulation
from scenarios.flower import internals
from scenarios.flower.app import find_app
from scenarios.flower.process_state import preserve_process
from scenarios.flower.randomness import preserve_states, seed_all
from scenarios.flower.reports import report_server_metrics
from scenarios.flower.simulated_time import mark_code, simulate_time
from scenarios.schema.errors import UserError, first_line
from scenarios.schema.servers.flower import check_work

if TYPE_CHECKING:
    from netsim.servers.kinds.messages import MessageServer
    from scenarios.flower.app import App
    from scenarios.flower.reports import Reports
    from scenarios.schema.scenario import Scenario
    from scenarios.schema.servers.flower import Flower

_SERVER_ADDRESS = -1


def app_simulation(scenario: Scenario, server: Any, keywords: dict[str, Any]) -> AppSimulation:
    """Return the simulation of the app of `scenario` over `server`; raises UserError.

    `keywords`: other arguments of `AppSimulation`.
    """
    section = scenario.flower
    assert section is not None
    needs_samples = check_work(scenario.compute)
    app = AppRun(
        app=find_app(section),
        server=server,
        reports=server.learner.reports,
        section=section,
        seed=scenario.seed,
        needs_samples=needs_samples,
    )
    app.try_import()
    return AppSimulation(app=app, server=server, **keywords)


class AppRun:
    """Callable that runs an app over `server`.

    `seed`: seed of the app's random numbers. `needs_samples`: True if the time of a message depends on its samples.
    """

    def __init__(
        self, *, app: App, server: MessageServer, reports: Reports, section: Flower, seed: int, needs_samples: bool
    ) -> None:
        self.app, self.server, self.reports, self.section, self.seed = app, server, reports, section, seed
        self._needs_samples = needs_samples
        self.nodes: Any = None

    def try_import(self) -> None:
        """Import the app's components, before the run writes anything; raises UserError."""
        with preserve_process(), preserve_states(), self.app.components() as (serverapp, clientapp):
            self._check(serverapp, clientapp)

    def __call__(self) -> None:
        """Run the ServerApp to its end; raises RunOverError if the run is over before, and UserError."""
        with preserve_process(), preserve_states(), self.app.components() as (serverapp, clientapp):
            self._check(serverapp, clientapp)
            self._run(serverapp, clientapp)

    def _check(self, serverapp: Any, clientapp: Any) -> None:
        """Raise UserError unless the components are a ServerApp and a ClientApp."""
        from flwr.clientapp import ClientApp
        from flwr.serverapp import ServerApp

        for name, component, required in (("serverapp", serverapp, ServerApp), ("clientapp", clientapp, ClientApp)):
            if not isinstance(component, required):
                message = f"flower.app = {self.app.name!r}: {name} is a {type(component).__name__}"
                raise UserError(f"{message}; must be a {required.__name__} of flwr")

    def _run(self, serverapp: Any, clientapp: Any) -> None:
        """Run the ServerApp on a simulated grid, to its end."""
        from flwr.app import Context, RecordDict

        from scenarios.flower.grid import SimulatedGrid
        from scenarios.flower.legacy import run_in_one_thread
        from scenarios.flower.nodes import Nodes

        config, clients = self.app.run_config, self.server.clients.count
        self.nodes = Nodes(
            clientapp=clientapp,
            section=self.section,
            run_config=config,
            clients=clients,
            seed=self.seed,
            needs_samples=self._needs_samples,
        )
        grid = SimulatedGrid(
            server=self.server,
            nodes=self.nodes,
            reports=self.reports,
            section=self.section,
            run_config=config,
            is_file=self.app.is_file,
        )
        context = Context(
            run_id=internals.RUN_ID, node_id=internals.SERVER_NODE, node_config={}, state=RecordDict(), run_config=dict(config)
        )
        seed_all(self.seed, _SERVER_ADDRESS)
        with ExitStack() as stack:
            stack.enter_context(internals.task_identity(internals.SERVER_NODE))
            stack.enter_context(report_server_metrics(self.reports))
            stack.enter_context(run_in_one_thread(grid))
            stack.enter_context(simulate_time(grid.time, self.app.owns))
            try:
                with mark_code(grid.time, is_app=True):
                    serverapp(grid, context)
            except RunOverError:
                raise
            except (Exception, SystemExit) as error:
                grid.check()
                # A ServerApp may leave by sys.exit().
                if not (isinstance(error, SystemExit) and error.code in (None, 0)):
                    raise UserError(self._error_text(error)) from error
        grid.check()
        self._refuse_no_messages()

    def _error_text(self, error: BaseException) -> str:
        """Return the message about an exception of the ServerApp, with its line in the app."""
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if self.app.is_file(frame.filename)]
        line = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
        message = f"flower.app = {self.app.name!r}: its ServerApp raised {type(error).__name__}: {first_line(error)}{line}"
        if self.nodes.raised:
            message += f"; before, its ClientApp raised at {self.nodes.raised[0]}"
        return f"{message} (round {self.server.round + 1}, {self.server.clients.clock.now:g} s, seed {self.seed})"

    def _refuse_no_messages(self) -> None:
        """Raise UserError for an app that sent no message, or whose ClientApp never answered one."""
        if not self.server.clients.started:
            raise UserError(
                f"flower.app = {self.app.name!r}: its ServerApp returned without sending a message; let it send some, such as by "
                "a strategy's start"
            )
        if self.nodes.raised and not self.nodes.answered:
            message = f"flower.app = {self.app.name!r}: its ClientApp raised at every message"
            raise UserError(f"{message}, first {self.nodes.raised[0]}")
