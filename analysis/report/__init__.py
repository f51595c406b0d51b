"""The report of a run or a sweep: which sections it has, in which order, and how it is written."""
