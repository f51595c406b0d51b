"""Ground floor of the engine: the clock, addressed randomness, intervals of time, the Protocols that
models satisfy, and null objects.
"""
