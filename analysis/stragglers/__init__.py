"""Time of a run: phases of clients, closes of rounds and the clients they waited for, and the critical path."""
