"""Those who live in the world: adapters for reinforcement-learning libraries, and what is built on them."""
