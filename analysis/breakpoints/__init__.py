"""What changes of the world did to runs: how soon they were declared, what they cost, and how long it took to recover."""
