"""What this project claims, as commands: each prints a table with its floor and its ceiling, and can write JSON."""
