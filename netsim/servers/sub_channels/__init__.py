"""Sub-channels under a server: their assignment by a scheduler, instruments, and the oracle of ages."""
