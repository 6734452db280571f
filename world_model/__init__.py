"""The WorldPlay2 interactive world model: a world is a stream of chunks (see `rollout.WorldStream`)."""
