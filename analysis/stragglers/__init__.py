"""Where the time of a run went: phases of clients, what closed each round, and the critical path."""
