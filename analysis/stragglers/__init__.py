"""Who held a run up: rounds decomposed into phases, who closed each of them, and the critical path of the run."""
