"""Analysis of a run's time: phases of clients, closes of rounds and the clients that they waited for, and the critical path."""
