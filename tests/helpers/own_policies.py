"""Policies of a user's own, as the text of a module."""

KILLING = """
import os, signal
from pathlib import Path
from models.policies.random import Random

class Killing(Random):
    '''Kills its process in round 3, unless it did so often enough, as a count in a file says.'''

    def __init__(self, *, clients: int, per_round: int, times: int, file: str):
        super().__init__(clients=clients, per_round=per_round)
        self.times, self.file = times, Path(file)

    def select(self, view):
        done = len(self.file.read_text()) if self.file.exists() else 0
        if view.round == 3 and done < self.times:
            self.file.write_text("x" * (done + 1))
            os.kill(os.getpid(), signal.SIGKILL)
        return super().select(view)
"""
