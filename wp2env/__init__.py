"""WorldPlay2 as a Gymnasium environment.

Importing this package registers ``WorldPlay2-v0``, and ``WorldPlay2-TrueGame-v0``, the game that the bundled world was
made from, and loads nothing else; ``gymnasium.make("wp2env:WorldPlay2-v0")`` imports it by itself.
"""

from __future__ import annotations

import gymnasium

ENV_ID = "WorldPlay2-v0"
TRUE_GAME_ID = "WorldPlay2-TrueGame-v0"
EPISODE_STEPS = 256  # about half a minute of the bundled world; `max_episode_steps` chooses another length

if ENV_ID not in gymnasium.registry:
    gymnasium.register(
        ENV_ID,
        entry_point="wp2env.env:WorldPlay2Env",
        vector_entry_point="wp2env.vector_env:WorldPlay2VectorEnv",
        max_episode_steps=EPISODE_STEPS,
        kwargs={"world": "doom", "task": "explore", "action_mode": "dict", "obs_mode": "frame", "device": "cpu"},
    )

if TRUE_GAME_ID not in gymnasium.registry:
    gymnasium.register(
        TRUE_GAME_ID,
        entry_point="wp2env.true_game:TrueGameEnv",
        vector_entry_point="wp2env.true_game:TrueGameVectorEnv",
        max_episode_steps=EPISODE_STEPS,
        kwargs={"task": "explore", "action_mode": "dict", "obs_mode": "frame"},
    )
