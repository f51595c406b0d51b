"""Compression of what is sent: one method a file. A message's size is known without torch; only `compress` is given tensors."""
