"""Connection to a Dask scheduler, which may be started on this machine for the length of a block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from scenarios.schema.errors import UserError
from scenarios.workers import dask_worker
from scenarios.workers.interrupts import out_of_reach
from scenarios.workers.safe_path import SAFE_PATH, restored_environment, safe_path
from scenarios.workers.scratch import scratch_folder
from scenarios.workers.versions import refuse_versions, versions

_LOCAL = re.compile(r"local:(\d{1,4})")
_PATIENCE_S = 60.0
"""Seconds to wait for a scheduler and its first worker."""


def is_local(address: str) -> bool:
    """Return True for "local:N", a scheduler with N processes that is started on this machine."""
    return _LOCAL.fullmatch(address) is not None


@contextmanager
def connect(address: str, key: str) -> Iterator[Any]:
    """Yield a client of the scheduler at `address`, which has a worker; "local:N" starts one with N processes on this machine.

    `key`: the option that gave the address. Raises UserError if no scheduler answers within `_PATIENCE_S` seconds, if it
    has no worker within as many more, or if a worker has other versions of packages than this process.
    """
    try:
        import distributed
    except ImportError as error:
        remedy = "install netsim with its extra: pip install 'netsim[cluster]'"
        raise UserError(f"{key} {address!r}: needs Dask: {error}; {remedy}") from error
    with ExitStack() as stack:
        make_client: Any = distributed.Client
        local = _LOCAL.fullmatch(address)
        target: Any = address if local is None else stack.enter_context(_local_cluster(int(local[1]), key))
        try:
            client = stack.enter_context(make_client(target, timeout=_PATIENCE_S, set_as_default=False))
            client.wait_for_workers(1, timeout=_PATIENCE_S)
            found = client.run(versions)
        except (OSError, ValueError, TimeoutError) as error:
            raise UserError(f"{key} {address!r}: no scheduler with workers answers there ({error})") from error
        except ImportError as error:
            raise UserError(f"{key} {address!r}: its workers lack netsim ({error}); install it there") from error
        for who, theirs in found.items():
            refuse_versions(key, f"worker {who}", versions(), theirs)
        yield client


@contextmanager
def _local_cluster(workers: int, key: str) -> Iterator[Any]:
    """Yield a scheduler with `workers` processes of one thread each on this machine, which end with the block.

    Their files lie in a temporary folder. Dask's settings and the environment of this process are as before after the block.
    """
    import dask
    import distributed

    if not workers:
        raise UserError(f"{key} 'local:0': needs a worker at least")
    create: Any = distributed.LocalCluster

    def start(**options: Any) -> Any:
        with safe_path():
            return create(**options)

    settings = {
        # A run whose worker is killed comes back at once: it is this program that tries again, and counts.
        "distributed.scheduler.allowed-failures": 0,
        "distributed.comm.timeouts.connect": "60s",
        "distributed.worker.preload": [dask_worker.__name__],
        # Each process of Dask measures its event loop (50 times a second), its machine, and the stacks of its threads. Do that
        # less often.
        "distributed.admin.tick.interval": "1s",
        "distributed.admin.system-monitor.interval": "10s",
        "distributed.worker.profile.enabled": False,
        # Also for workers that are started again.
        **{f"distributed.nanny.pre-spawn-environ.{name}": value for name, value in SAFE_PATH.items()},
    }
    with (
        scratch_folder() as scratch,
        dask.config.set({**settings, "temporary-directory": scratch}),
        # Dask sets the variables of its workers in this process, too, whenever it starts one, and leaves them there.
        restored_environment([*dask.config.get("distributed.nanny.pre-spawn-environ"), "PYTHONHASHSEED"]),
        ThreadPoolExecutor(1) as thread,
    ):
        # In a thread, so that an interrupt of this one cannot leave the cluster half started.
        with out_of_reach():
            starting = thread.submit(
                start,
                n_workers=workers,
                threads_per_worker=1,
                memory_limit=0,
                dashboard_address="127.0.0.1:0",
                local_directory=scratch,
                silence_logs="CRITICAL",
            )
        try:
            yield starting.result()
        finally:
            # After an interrupt, wait for the start to end: a cluster that is half started cannot be closed.
            starting.result().close()
