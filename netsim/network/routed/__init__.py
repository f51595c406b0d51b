"""A network of links below all messages: each takes the delay of its route, and is then a flow on the route's links."""
