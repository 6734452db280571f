"""The whole story in one command: an agent that learns in a generated world, and what it can do in the true game."""
