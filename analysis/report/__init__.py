"""The report of a run or a sweep: its sections, their order, and the writing of files."""
