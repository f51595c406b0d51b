"""Every file operation of every command fails once: `python -m tests.reliability.files [COMMAND ...]`.

For n = 1, 2, ... until the command gets through without a failure: its n-th operation that changes a file fails (opening for
writing, write, fsync, rename, mkdir, unlink, rmdir, truncate), once with "input/output error", and once with "no space left on
device", after which nothing can be written any more. It must end with one message and exit code 2 (130 where it was interrupted),
or with what it would have left anyway; what was complete stays; and afterwards the work is completed byte for byte.

A C compiler makes the library that lets operations fail (fail_nth.c); each attempt is a fork of a process that has everything
imported.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("fail_nth.c")
ROOT = Path(__file__).parents[2]
STUDY = """
name = "study"
rounds = 4
clients = { count = 6 }
server = { per_round = 2 }
policy = { kind = "random" }
uplink = { delay = { kind = "gaussian", mean_s = 0.2, std_s = 0.05 } }
sweep = { seeds = [1, 2] }
"""
RUN = ("run", "study.toml", "--out", "out", "--quiet")
SWEEP = ("sweep", "study.toml", "--out", "out", "--quiet", "--jobs", "1", "--no-figures")
REPORT = ("report", "out", "--format", "md")
FAILURES = {"once": (errno.EIO, 0), "disk full": (errno.ENOSPC, 1)}
BUG = 70
"""Exit code of a command that ends in a traceback."""


def compiled(folder: Path) -> Path | None:
    """The library that lets operations fail; None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = folder / "fail_nth.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
    return library


@dataclass(frozen=True)
class Attack:
    """A command whose file operations fail, what is there before, and how its work is completed afterwards."""

    command: tuple[str, ...]
    before: tuple[tuple[str, ...], ...] = ()
    """Commands that run without a failure first; "^C" at the end of one: interrupted in round 2."""
    further: tuple[str, ...] = ()
    """What completes the work where the command has left something in `out`."""
    good: tuple[int, ...] = (0,)
    """The exit codes of the command without a failure."""
    result: Callable[[Path], dict[str, bytes]] = field(default=lambda folder: tables(folder))
    """What must be the same in the end."""


def tables(folder: Path) -> dict[str, bytes]:
    """The tables of complete runs below `folder`, without what could not be removed of temporary folders."""
    found = sorted((*folder.rglob("*.parquet"), *folder.rglob("scenario.toml")))
    names = [path.relative_to(folder) for path in found]
    return {str(name): (folder / name).read_bytes() for name in names if not {"tmp", "unfinished"} & set(name.parts)}



def files(folder: Path) -> dict[str, bytes]:
    """Every file below `folder`."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


ATTACKS = {
    "run": Attack(RUN, further=("resume", "out", "--quiet")),
    "run, interrupted": Attack((*RUN, "^C"), further=("resume", "out", "--quiet"), good=(130,)),
    "resume": Attack(("resume", "out", "--quiet"), before=((*RUN, "^C"),), further=("resume", "out", "--quiet")),
    "run --overwrite": Attack((*RUN, "--overwrite"), before=((*RUN, "--seed", "5"),), further=(*RUN, "--overwrite")),
    "sweep": Attack(SWEEP, further=(*SWEEP, "--resume")),
    "sweep --resume": Attack((*SWEEP, "--resume"), before=((*SWEEP, "^C"),), further=(*SWEEP, "--resume")),
    "report": Attack(REPORT, before=(RUN,), further=REPORT, result=files),
    "trace": Attack(("trace", "out"), before=(RUN,), further=("trace", "out"), result=tables),
    "compare": Attack(("compare", "out", "--out", "figures"), before=(SWEEP,), further=("compare", "out", "--out", "figures")),
    "replay": Attack(
        ("replay", "out", "--quiet"),
        before=(RUN,),
        further=("replay", "out", "--quiet"),
    ),
}


@dataclass
class Ended:
    """How a command ended."""

    code: int
    told: str
    operations: int


class Stage:
    """A folder in which commands are run, each in a fork of this process; `library`: loaded into it before it began."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.folder = folder
        self._library = ctypes.CDLL(str(library))

    def reset(self, template: Path | None = None) -> None:
        """Begin with the files of a template, or with the study alone."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if template is not None:
            shutil.copytree(template, self.folder)
        else:
            self.folder.mkdir(parents=True)
            (self.folder / "study.toml").write_text(STUDY, encoding="utf-8")
        (self.folder / "tmp").mkdir(exist_ok=True)

    def run(self, command: tuple[str, ...], n: int = 0, how: str = "once") -> Ended:
        """Run a command, whose n-th file operation fails (0: none)."""
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+b") as counted:
            child = os.fork()
            if child == 0:
                code = BUG
                try:
                    code = self._in_child(command, n, how, output.fileno(), counted.fileno())
                finally:
                    os._exit(code)
            _, status = os.waitpid(child, 0)
            output.seek(0)
            counted.seek(0)
            return Ended(os.waitstatus_to_exitcode(status), output.read(), int(counted.read() or 0))

    def _in_child(self, command: tuple[str, ...], n: int, how: str, output: int, counted: int) -> int:
        from scenarios.cli.main import main

        os.dup2(output, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.chdir(self.folder)
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.folder / "tmp")
        if command[-1] == "^C":
            command = command[:-1]
            interrupting(2)
        sys.argv = ["netsim", *command]
        error, lasting = FAILURES[how]
        self._library.fault_arm(str(self.folder).encode(), ctypes.c_long(n), error, lasting)
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
            code = BUG
        self._library.fault_count.restype = ctypes.c_long
        done = self._library.fault_count()
        self._library.fault_arm(b"", ctypes.c_long(0), 0, 0)
        sys.stderr.flush()
        os.write(counted, str(done).encode())
        return code


def interrupting(round: int) -> None:
    """Let every run of this process be interrupted after a round."""
    from scenarios.runs import run as runs

    simulate = runs._simulate_rounds

    def cut(simulation: Any, keep: Any, stop: Any, after_round: Any, checkpoint_s: float) -> str:
        def after(now: Any) -> None:
            after_round(now)
            if now.server.round == round:
                os.kill(os.getpid(), signal.SIGINT)

        return simulate(simulation, keep, stop, after, checkpoint_s)

    runs._simulate_rounds = cut


def problems(attack: Attack, stage: Stage, expected: dict[str, bytes], template: Path | None, ended: Ended) -> Iterator[str]:
    """What is wrong with how a command ended whose n-th operation failed; completes its work."""
    told = [line for line in ended.told.splitlines() if line.strip() and not line.startswith("warning: ")]
    if ended.code not in (2, *attack.good):
        yield f"exit code {ended.code}: {ended.told[-300:]}"
    if ended.code == 2 and len(told) != 1 and "sweep" not in attack.command:
        yield f"{len(told)} lines in place of one message: {ended.told[-300:]!r}"
    if "Traceback" in ended.told or "Exception ignored" in ended.told:
        yield f"a traceback: {ended.told[-1000:]}"
    if ended.code == 0 and attack.result(stage.folder) != expected:
        yield "exit code 0, and other results"
    if template is not None and "--overwrite" not in attack.command:
        lost = [name for name in tables(template / "out") if not (stage.folder / "out" / name).is_file()]
        if lost:
            yield f"lost {lost}"
    begun = (stage.folder / "out").is_dir()
    after = stage.run(attack.further if begun and attack.further else attack.command)
    if begun and after.code == 2 and "has come to its end" in after.told:
        after = Ended(0, "", 0)
    if after.code not in (0, *attack.good):
        yield f"cannot go on afterwards, exit code {after.code}: {after.told[-300:]}"
    elif after.code == 0 and attack.result(stage.folder) != expected:
        yield "goes on to other results"


@contextmanager
def fine_grained() -> Iterator[None]:
    """Checkpoints after every round, and pieces of tables of a few rows."""
    from netsim.records import in_memory
    from scenarios.runs import run as runs

    in_memory._FLUSH_ROWS = 5
    for function in (runs.run, runs.simulate, runs.go_on):
        function.__kwdefaults__["checkpoint_s"] = 0.0
    yield


def attacked(
    name: str, stage: Stage, templates: Path, say: Callable[[str], None], step: int = 1, first: int = 1
) -> tuple[int, list[str]]:
    """Let every `step`-th operation of a command fail, from the `first` on, both ways; how many did, and what was wrong."""
    attack, found, tried = ATTACKS[name], [], 0
    template = None
    if attack.before:
        template = templates / name.replace(" ", "-")
        stage.reset()
        for command in attack.before:
            ended = stage.run(command)
            assert ended.code in (0, 130), ended.told
        shutil.copytree(stage.folder, template)
    stage.reset(template)
    whole = stage.run(attack.command)
    assert whole.code in attack.good, whole.told
    assert whole.operations, f"{name}: there is nothing that could fail"
    if 130 in attack.good:
        assert stage.run(attack.further).code == 0
    expected = attack.result(stage.folder)
    for how in FAILURES:
        n, before = first, tried
        while True:
            stage.reset(template)
            ended = stage.run(attack.command, n, how)
            if ended.operations < n:
                break
            tried += 1
            for told in problems(attack, stage, expected, template, ended):
                found.append(f"{name}, operation {n} ({how}): {told}")
                say(found[-1])
            if (tried - before) % 100 == 0:
                say(f"{name}, {how}: up to operation {n} of {whole.operations}")
            n += step
        say(f"{name}, {how}: {tried - before} operations failed, {len(found)} problems so far")
    return tried, found


def warm_up(stage: Stage, names: list[str]) -> None:
    """Run the commands once in this process, so that what they import is imported once and not in every fork."""
    from scenarios.cli.main import main

    stage.reset()
    here = os.getcwd()
    os.chdir(stage.folder)
    for command in dict.fromkeys([RUN, *(ATTACKS[name].command for name in names)]):
        sys.argv = ["netsim", *(word for word in command if word != "^C")]
        with suppress(SystemExit):
            main()
    os.chdir(here)


def main() -> None:
    """Attack the commands that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.files")
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help=f"of {', '.join(ATTACKS)}; default: all")
    parser.add_argument("--step", type=int, default=1, help="every STEP-th operation only")
    parser.add_argument("--first", type=int, default=1, help="from this one on")
    given = parser.parse_args()
    names = given.commands or list(ATTACKS)
    # As a job in the background it may have been told to ignore interrupts; the commands that it interrupts must not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as scratch:
        library = compiled(Path(scratch))
        if library is None:
            sys.exit("there is no C compiler (cc)")
        if os.environ.get("LD_PRELOAD") is None:
            environment = os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)}
            sys.exit(subprocess.run([sys.executable, "-m", "tests.reliability.files", *sys.argv[1:]], env=environment).returncode)
        report(names, Path(scratch), Path(os.environ["LD_PRELOAD"]), given.step, given.first)


def report(names: list[str], scratch: Path, library: Path, step: int, first: int) -> None:
    """Attack, and print what was found."""
    stage = Stage(scratch / "stage", library)
    count, found = 0, []
    warm_up(stage, names)
    with fine_grained():
        for name in names:
            tried, wrong = attacked(name, stage, scratch, lambda text: print(text, flush=True), step, first)
            count, found = count + tried, found + wrong
    print(f"{count} operations failed, {len(found)} problems")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
