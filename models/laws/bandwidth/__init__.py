"""Laws of bandwidth: the bytes per second of a client's link, or of a shared link, over time."""
