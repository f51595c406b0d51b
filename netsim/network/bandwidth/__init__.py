"""Time that the bytes of a message take: on a client's own link, or on a link that messages share."""
