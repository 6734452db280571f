"""`WorldPlay2Env`: the single environment, which is the vector environment with one slot."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from world_model.controls import StructuredCaption
from wp2env.episodes import EnvState
from wp2env.infos import slot_info
from wp2env.keyboard import keys_to_action
from wp2env.spaces import batch_of_one
from wp2env.starts import StartBank
from wp2env.tasks import RewardSource, TaskContext
from wp2env.vector_env import RENDER_MODES, WorldPlay2VectorEnv


class WorldPlay2Env(gymnasium.Env):
    """
    ## Description
    An interactive world model as an environment: a neural network draws every frame. An agent moves, turns, jumps and
    changes between first and third person; captions say what the place is, who is seen, and what happens now. The
    world remembers what it has shown. One step is one *chunk* of latent frames; the bundled world's chunk is one
    latent, so the agent decides at every latent.

    ```python
    import gymnasium, wp2env
    env = gymnasium.make("WorldPlay2-v0", action_mode="multidiscrete")
    envs = gymnasium.make_vec("WorldPlay2-v0", num_envs=8)   # one network, eight slots
    ```

    ## Action Space
    `action_mode="dict"` (default):

    | key            | space         | meaning                                                             |
    |----------------|---------------|---------------------------------------------------------------------|
    | `camera`       | `Box(-1,1,2)` | pitch and yaw, times `max_pitch`, `max_yaw` degrees; up, right are + |
    | `longitudinal` | `Discrete(3)` | 0 back, 1 stay, 2 forward                                           |
    | `lateral`      | `Discrete(3)` | 0 left, 1 stay, 2 right                                             |
    | `perspective`  | `Discrete(2)` | the view wanted now: 0 third person, 1 first person                 |
    | `jump`         | `Discrete(2)` | 1 jumps                                                             |

    | other modes       | space                                                | for                        |
    |-------------------|------------------------------------------------------|----------------------------|
    | `"multidiscrete"` | `MultiDiscrete([yaw_bins, pitch_bins, 3, 3, 2, 2])`  | stable-baselines3 PPO, A2C |
    | `"discrete"`      | `Discrete(13)`, `wp2env.spaces.DiscreteActions.menu` | DQN                        |
    | `"box"`           | `Box(-1, 1, (6,))`, flags switch at +-1/3            | SAC, TD3                   |
    | `"hybrid"`        | the dict and `event: Text(192)`                      | agents that write events   |

    An event "" keeps the one in force, "None" ends it.
    An action holds for the whole chunk; `per_latent_actions=True` takes one for each of its latents. `idle_action()`
    does nothing. In every mode the world reads rows of `world_model.controls.FrameAction`.

    ## Observation Space
    The newest frame, `Box(0, 255, (H, W, 3), uint8)`, RGB. With `obs_mode="clip"` all frames of the chunk,
    `(F, H, W, 3)`; after a reset a still one. `info` holds

    | key                 | value                                                                          |
    |---------------------|--------------------------------------------------------------------------------|
    | `caption`           | `{"scene", "character", "event"}` as now in force                              |
    | `step`              | steps of this episode                                                          |
    | `reward_source`     | what rewards                                                                   |
    | `reward_terms`      | what the reward is made of (after a step)                                      |
    | `reward_confidence` | if the task knows it (after a step)                                            |
    | `start_index`       | place in the bank of starts, -1 for your own (after a reset)                   |
    | `truncation_reason` | "time" or "confidence", in the step that truncates (a `TimeLimit` wrapper adds none) |
    | `frames`            | the chunk's frames `(F, H, W, 3)`, with `info_frames=True`                     |

    It holds no times, so that equal seeds give equal infos; the attribute `latency` has the last step's seconds.

    ## Rewards
    A world model has no true reward. `task` says who judges the pictures:

    | task                                                                   | reward                                 |
    |------------------------------------------------------------------------|----------------------------------------|
    | `"explore"`                                                            | pictures that the episode has not      |
    |                                                                        | shown yet, `wp2env.tasks.Exploration`  |
    | `"walk to the red ball"`, `"collect health packs"`, `"reach the exit"` | the world's learned reward heads,      |
    |                                                                        | `wp2env.named_tasks`                   |
    | `"event happened"`                                                     | the picture changes after an event was |
    |                                                                        | announced, `wp2env.event_task`         |
    | `"constant"`                                                           | 0                                      |

    A `RewardSource` such as `GoalImage(picture)` or `Composite(...)`, or a function of the `wp2env.tasks.TaskContext`,
    is taken as it is. A task object belongs to one environment.

    ## Starting State
    A start drawn from the world's bank of recorded ones. `reset(options=...)` takes

    | option         | value                                                                                  |
    |----------------|----------------------------------------------------------------------------------------|
    | `caption`      | dict with any of `scene`, `character`, `event`, or a `StructuredCaption`               |
    | `init_frames`  | uint8 RGB picture `[h, w, 3]` or frames `[T, h, w, 3]`, newest last                    |
    | `text_only`    | True: the first picture, too, is generated                                             |
    | `start_index`  | place in the bank                                                                      |
    | `perspective`  | view of the start, 0 or 1; by default the bank's, or 1                                 |

    The caption's fields replace the start's; with `init_frames` and `text_only` it must bring a scene. Pictures of
    another size are cropped around their centre to the world's aspect ratio, then resized.
    Of several frames the world takes the newest 1 + a multiple of its chunk. In first person the character's caption
    is "None", in third person the start's; one that you set, here or by `set_caption`, holds in both views.

    ## Episode End
    Terminated: when the task says so; exploration never does. Truncated: after 256 steps (`max_episode_steps`), and
    with `min_confidence` when the task's `reward_confidence` falls below it, so that agents do not learn where the
    task contradicts itself; that of the named tasks lies between -0.5 and 0, see `wp2env.named_tasks`.

    ## Arguments
    world: name of a bundled world, a folder, or a world object (which specs cannot hold).
    task: see Rewards.
    action_mode, per_latent_actions, max_pitch, max_yaw, pitch_bins, yaw_bins: see Action Space; degrees per latent.
    obs_mode, info_frames: see Observation Space.
    device: where a named world is loaded, "cpu" or "cuda".
    dtype: what a named world calculates in, "float32" or "bfloat16" (faster for many slots, if the processor has it).
    sampling_steps: network evaluations per chunk; None for the world's own number. A distilled world takes divisors
        of the number that it was distilled to.
    temperature: scale of the noise that frames begin from; 1 as trained, 0 without chance.
    starts: a file with a bank of starts, or a `wp2env.starts.StartBank`, instead of the world's own.
    render_mode: "rgb_array", "rgb_array_list" (one frame per step) or "human" (a window; needs pygame).
    max_episode_steps: for an environment made without `gymnasium.make`, which brings its own limit.
    min_confidence: see Episode End; None for no such limit.

    Beside Gymnasium's methods there are `set_event`, `set_caption`, `get_state`, `set_state` and `clone`. Bad input
    raises one sentence and leaves the episode as it was. Environments pickle without the network, which is loaded
    again, once per process, when it is needed.

    ## Version History
    v0: first version.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 9}

    def __init__(
        self,
        world: Any = "doom",
        task: str | RewardSource | Callable[[TaskContext], Any] = "explore",
        action_mode: str = "dict",
        obs_mode: str = "frame",
        device: str = "cpu",
        *,
        dtype: str = "float32",
        max_episode_steps: int | None = None,
        min_confidence: float | None = None,
        sampling_steps: int | None = None,
        temperature: float = 1.0,
        starts: str | Path | StartBank | None = None,
        per_latent_actions: bool = False,
        max_pitch: float = 15.0,
        max_yaw: float = 20.0,
        pitch_bins: int = 3,
        yaw_bins: int = 5,
        info_frames: bool = False,
        render_mode: str | None = None,
    ) -> None:
        batch = WorldPlay2VectorEnv(
            num_envs=1,
            world=world,
            task=task,
            action_mode=action_mode,
            obs_mode=obs_mode,
            device=device,
            dtype=dtype,
            autoreset_mode=AutoresetMode.DISABLED,
            max_episode_steps=max_episode_steps,
            min_confidence=min_confidence,
            sampling_steps=sampling_steps,
            temperature=temperature,
            starts=starts,
            per_latent_actions=per_latent_actions,
            max_pitch=max_pitch,
            max_yaw=max_yaw,
            pitch_bins=pitch_bins,
            yaw_bins=yaw_bins,
            info_frames=info_frames,
            render_mode=render_mode,
        )
        self._take(batch)

    def _take(self, batch: WorldPlay2VectorEnv) -> None:
        """Be the one slot of a vector environment."""
        self.batch, self.render_mode = batch, batch.render_mode
        self.observation_space = self.batch.single_observation_space
        self.action_space = self.batch.single_action_space
        self.metadata = {**type(self).metadata, "render_fps": self.batch.metadata["render_fps"]}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin a new episode; see Starting State for the options.

        Raises:
            ValueError: for a malformed seed or option; the running episode goes on then.
        """
        # The generator that `super().reset(seed=seed)` would make is the slot's, see `_np_random`.
        observations, infos = self.batch.reset(seed=[seed], options=options)
        return observations[0], slot_info(infos, 0)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Generate one chunk under an action.

        Raises:
            ValueError: for an action outside the space; the episode is as it was then.
            gymnasium.error.ResetNeeded: before the first reset and after a terminated episode.
        """
        observations, rewards, terminated, truncated, infos = self.batch.step(batch_of_one(action))
        return observations[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), slot_info(infos, 0)

    def set_event(self, text: str | None) -> None:
        """Announce an event, which stays in force until the next one; None ends it."""
        self.batch.set_event(text)

    def set_caption(self, scene: str | None = None, character: str | None = None, event: str | None = None) -> None:
        """Exchange fields of the caption from the next step on; None keeps a field, "None" empties it.

        A character set here is in force in both perspectives until the reset.

        Raises:
            ValueError: for a text that is none; nothing has changed then.
        """
        self.batch.set_caption(scene, character, event)

    @property
    def caption(self) -> StructuredCaption:
        """The caption as now in force."""
        return self.batch.captions[0]

    @property
    def latency(self) -> float:
        """Seconds that the world took for the last step."""
        return self.batch.latency

    def idle_action(self) -> Any:
        """The action that does nothing and keeps the perspective; `gymnasium.utils.play` takes it as `noop`."""
        return self.batch.idle_action()

    def get_keys_to_action(self) -> dict[tuple[int, ...], Any]:
        """Keys for `gymnasium.utils.play`: w/a/s/d, arrows, space, and v for the other perspective.

        Give `play` also ``noop=env.unwrapped.idle_action()``.
        """
        return keys_to_action(self.batch.actions, self.batch.turns, int(self.batch.perspectives[0]))

    def get_state(self) -> EnvState:
        """The whole state: world, memory, generators, caption, task and steps; later steps do not change it.

        The step count of a `TimeLimit` wrapper is not part of it.
        """
        return self.batch.get_state()

    def set_state(self, state: EnvState) -> None:
        """Go back to a state, any number of times.

        Raises:
            ValueError: for a state of another kind of environment; nothing has changed then.
        """
        self.batch.set_state(state)

    def clone(self) -> WorldPlay2Env:
        """An independent environment in the same state, without wrappers, on the same network; it opens no window."""
        twin = copy.deepcopy(self)
        if self.render_mode == "human":
            twin.render_mode = twin.batch.render_mode = None
        return twin

    def render(self) -> np.ndarray | list[np.ndarray] | None:
        """The newest frame, or with "rgb_array_list" those of every step since the last call or reset."""
        frames = self.batch.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        """Close the window and let go of the running world; any number of times."""
        self.batch.close()

    # Gymnasium keeps an environment's generator in these two attributes; here both are the slot's.

    @property
    def _np_random(self) -> np.random.Generator | None:
        return self.batch.episodes.slots.random[0]

    @_np_random.setter
    def _np_random(self, generator: np.random.Generator | None) -> None:
        self.batch.episodes.slots.random[0] = generator

    @property
    def _np_random_seed(self) -> int | None:
        return self.batch.episodes.slots.seeds[0]

    @_np_random_seed.setter
    def _np_random_seed(self, seed: int | None) -> None:
        self.batch.episodes.slots.seeds[0] = seed
