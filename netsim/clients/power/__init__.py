"""Energy and batteries of the clients."""
