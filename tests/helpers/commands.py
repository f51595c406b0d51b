"""The command in a process of its own, and what it leaves in a folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

LONG = """
name = "long"
rounds = 10_000_000
clients = { count = 20 }
server = { per_round = 3 }
policy = { kind = "random" }
[uplink]
delay = { kind = "gaussian", mean_s = 0.2, std_s = 0.05 }
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def tables(folder: Path) -> dict[str, bytes]:
    return {
        name: data for name, data in contents(folder).items() if name.endswith((".parquet", ".toml")) and "comparison" not in name
    }


def _heed_signals() -> None:
    """Undo what `nohup` and shells set for a test run in the background: to ignore interrupts and closed terminals."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from netsim import _command; _command()", *arguments],  # what the installed command does
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        preexec_fn=_heed_signals,
    )


def living(session: int) -> list[str]:
    """Processes of a session that have not ended."""
    shown = subprocess.run(["ps", "-o", "stat=,cmd=", "-s", str(session)], capture_output=True, text=True, check=False).stdout
    return [line for line in shown.splitlines() if not line.startswith("Z")]
