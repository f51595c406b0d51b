"""Energy and batteries of the clients: powers by state, joules of attempts, and the integral of power that checks them."""
