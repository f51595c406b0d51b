"""What every test may rely on."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from netsim.core.collector import exempt_existing_objects, pause_collector
from tests.helpers.images import draw_images

# How long an example takes depends on what else a machine does. The examples are the same every time; to look for others:
# pytest --hypothesis-profile=search
settings.register_profile("search", deadline=None)
settings.register_profile("repeated", deadline=None, derandomize=True)
settings.load_profile("repeated")

_NO_TORCH = "needs torch, which is not installed: pip install 'netsim[fl]'"


@pytest.fixture(autouse=True, scope="session")
def _interruptible() -> Iterator[None]:
    """A suite that a script starts in the background inherits that SIGINT is ignored; tests of interrupts could not pass."""
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True, scope="session")
def _writes_that_wait_for_no_disk() -> Iterator[None]:
    """Leave out `fsync` within the tests' own process: it guards against a loss of power alone, and takes milliseconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave each n-th case of a test with the mark `each_nth(n)` to the default suite, and the others to the slow one."""
    counts: dict[str, int] = {}
    for item in items:
        marker = item.get_closest_marker("each_nth")
        if marker is not None and item.get_closest_marker("slow") is None:
            test = item.nodeid.partition("[")[0]
            counts[test] = counts.get(test, -1) + 1
            if counts[test] % marker.args[0]:
                item.add_marker("slow")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Collect with the garbage collector off: it takes a third of the time, and all that is collected stays."""
    with pause_collector():
        return (yield)


@pytest.fixture(autouse=True, scope="session")
def _modules_set_aside() -> Iterator[None]:
    """Let the garbage collector pass over all modules and tests, and come seldom: it took a thirtieth of the suite's time."""
    before = gc.get_threshold()
    gc.set_threshold(20_000, *before[1:])
    with exempt_existing_objects():
        yield
    gc.set_threshold(*before)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread, as workers do: sums of several threads differ in their last bits."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _lacks_torch(error: BaseException | None) -> bool:
    """Whether an exception comes of torch, an optional package, not being installed."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name in ("torch", "torchvision"):
            return True
        error = error.__cause__ or error.__context__
    return False


class _ModuleThatMayNeedTorch(pytest.Module):
    """A test module, which is skipped as a whole where it cannot be imported without torch."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return super().collect()
        except self.CollectError as error:
            if _lacks_torch(error):
                pytest.skip(_NO_TORCH, allow_module_level=True)
            raise


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    module: pytest.Module = _ModuleThatMayNeedTorch.from_parent(parent, path=module_path)
    return module


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Draw images for tests that look at them; skip what says by itself that it trains, where torch is not installed."""
    draw_images(item.get_closest_marker("draws") is not None)
    if item.get_closest_marker("needs_torch") is not None:
        pytest.importorskip("torch", reason=_NO_TORCH)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Iterator[Any]:
    """Let tests share idle processes of workers, which are kept by the environment that they were started with."""
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip a test that turns out to train where torch is not installed."""
    try:
        yield
    except Exception as error:
        if _lacks_torch(error):
            pytest.skip(_NO_TORCH)
        raise
