"""Messages between nodes: their laws, draws, disturbances and the transport that carries them."""
