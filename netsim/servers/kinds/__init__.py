"""The kinds of servers, and the parts that belong to one kind."""
