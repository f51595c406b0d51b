"""Compression of messages, one method a file. The size of a message is known without torch; only `compress` receives tensors."""
