"""Ground floor of the engine: the clock, addressed randomness, intervals of time, Protocols that models satisfy, null objects,
saved state, and the row types of tables.
"""
