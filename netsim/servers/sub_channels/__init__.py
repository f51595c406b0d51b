"""Sub-channels under a server: access, assignment by a scheduler, and its oracle."""
