"""The true game behind the face of the generated world: the same spaces, options, infos and starts (needs ViZDoom)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gymnasium.vector import AutoresetMode

from world_model.data.doom.tasks import EXPLORE
from wp2env.env import WorldPlay2Env
from wp2env.game_episodes import GameEpisodes
from wp2env.game_starts import own_bank
from wp2env.game_stream import TrueGame
from wp2env.starts import StartBank, find_bank
from wp2env.tasks import RewardSource, TaskContext
from wp2env.vector_env import WorldPlay2VectorEnv


class TrueGameVectorEnv(WorldPlay2VectorEnv):
    """``num_envs`` true games, each with an engine of its own.

    What is true of a single game is told by `TrueGameEnv`, what is true of slots by `WorldPlay2VectorEnv`. `close`
    ends the engines.
    """

    episodes_type = GameEpisodes

    def __init__(
        self,
        num_envs: int = 1,
        task: str | RewardSource | Callable[[TaskContext], Any] = EXPLORE,
        action_mode: str = "dict",
        obs_mode: str = "frame",
        *,
        starts: str | Path | StartBank | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        max_episode_steps: int | None = None,
        output: str = "numpy",
        per_latent_actions: bool = False,
        max_pitch: float = 15.0,
        max_yaw: float = 20.0,
        pitch_bins: int = 3,
        yaw_bins: int = 5,
        info_frames: bool = False,
        render_mode: str | None = None,
    ) -> None:
        bank = find_bank(starts, None) or own_bank(task if isinstance(task, str) else EXPLORE)
        super().__init__(
            num_envs=num_envs,
            world=TrueGame(bank),
            task=task,
            action_mode=action_mode,
            obs_mode=obs_mode,
            autoreset_mode=autoreset_mode,
            max_episode_steps=max_episode_steps,
            output=output,
            starts=bank,
            per_latent_actions=per_latent_actions,
            max_pitch=max_pitch,
            max_yaw=max_yaw,
            pitch_bins=pitch_bins,
            yaw_bins=yaw_bins,
            info_frames=info_frames,
            render_mode=render_mode,
        )


class TrueGameEnv(WorldPlay2Env):
    """
    ## Description
    The game that the bundled world was made from, played by its own engine, as the environment that a generated world
    is: what acts in one acts in the other. It shows how much of what was learned in the world holds in the game.

    ```python
    import gymnasium, wp2env
    starts = "ball.safetensors"   # wp2 starts doom --task "walk to the red ball" --split test --count 50 --out ...
    world = gymnasium.make("WorldPlay2-v0", starts=starts)
    game = gymnasium.make("WorldPlay2-TrueGame-v0", starts=starts)   # start_index=3 is the same place in both
    ```

    ## Action Space, Observation Space
    Those of `wp2env.env.WorldPlay2Env`. One step is one frame, 4 of the engine's tics; the picture has the size of the
    starts' ones. The engine turns by whole multiples of 0.0165 degrees and stops at 28 degrees of pitch.

    ## Rewards
    ``task`` as in `WorldPlay2Env`. In the `wp2env.tasks.TaskContext`, ``truth`` holds the engine's own rewards and ends
    by task name (`world_model.data.doom.tasks.TASKS`).

    ## Starting State
    A start of the bank: the engine goes to its level and place and plays its actions, which end at exactly the newest
    frame of the bank. Of the options of `WorldPlay2Env`, ``start_index`` and ``perspective`` hold here;
    ``caption``, ``init_frames`` and ``text_only`` ask for what only a generated world can do and raise ValueError.

    ## Events
    `set_event` takes the captions that the game's own recordings have ("the lights go out", "a red ball appears"),
    one after the other, if that can happen here and now; another one raises ValueError. An event ends by itself.
    `set_caption` takes no other field: the captions are what is there.

    ## Episode End
    Terminated: when the task says so, or the game itself is over. Truncated: as in `WorldPlay2Env`.

    ## Arguments
    starts: a file or a `wp2env.starts.StartBank` that `wp2 starts doom` made. Without it 16 starts of the task are
        recorded, once per process, in levels of the split "test", always the same.
    The others as in `WorldPlay2Env`.

    `get_state` holds the actions since the reset; after `set_state` the next step plays them again. If an engine dies,
    RuntimeError is raised, and the same call again goes on from the same state with a new one.

    ## Version History
    v0: first version.
    """

    def __init__(
        self,
        task: str | RewardSource | Callable[[TaskContext], Any] = EXPLORE,
        action_mode: str = "dict",
        obs_mode: str = "frame",
        *,
        starts: str | Path | StartBank | None = None,
        max_episode_steps: int | None = None,
        per_latent_actions: bool = False,
        max_pitch: float = 15.0,
        max_yaw: float = 20.0,
        pitch_bins: int = 3,
        yaw_bins: int = 5,
        info_frames: bool = False,
        render_mode: str | None = None,
    ) -> None:
        batch = TrueGameVectorEnv(
            num_envs=1,
            task=task,
            action_mode=action_mode,
            obs_mode=obs_mode,
            starts=starts,
            autoreset_mode=AutoresetMode.DISABLED,
            max_episode_steps=max_episode_steps,
            per_latent_actions=per_latent_actions,
            max_pitch=max_pitch,
            max_yaw=max_yaw,
            pitch_bins=pitch_bins,
            yaw_bins=yaw_bins,
            info_frames=info_frames,
            render_mode=render_mode,
        )
        self._take(batch)
