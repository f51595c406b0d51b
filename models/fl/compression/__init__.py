"""Compression of messages, one method a file. The size of a message is known without torch; only `compress` receives tensors.

A message is a row (d,) of numbers that holds several tensors one after the other. `message_bytes(tensors)` returns its size, from
the number of numbers in each tensor; `compress(rows, tensors, generators)` returns rows (n, d) as they arrive.
"""
