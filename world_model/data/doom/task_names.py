"""What the engine's tasks are called, apart from the engine: environments judge them by name without it."""

from __future__ import annotations

NAMED_GOAL = "red ball"  # every level has one; it is what the walking task names
WALK_TO_BALL = f"walk to the {NAMED_GOAL}"
COLLECT_PACKS = "collect health packs"
REACH_EXIT = "reach the exit"
TASK_NAMES = (WALK_TO_BALL, COLLECT_PACKS, REACH_EXIT)
