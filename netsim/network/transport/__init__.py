"""Messages between clients, or from clients to the server, many at a time: their laws, draws, disturbances and the transport that
carries them.
"""
