"""Links of a network: their utilisation, the transfers that they limited, and their share of the critical path."""
