"""The command ``wp2``."""

from wp2env.cli.main import main

__all__ = ["main"]
