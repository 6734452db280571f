"""`WorldPlay2VectorEnv`: Gymnasium's vector interface over the episodes of one world."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from world_model.controls import ACTION_DIM, NOTHING, PERSPECTIVE, StructuredCaption
from wp2env.episodes import EnvState, Episodes
from wp2env.loading import WorldHandle
from wp2env.options import StartRequest, caption_fields, read_mask, read_requests, read_seeds
from wp2env.spaces import ChunkActions, Turns
from wp2env.starts import StartBank, find_bank
from wp2env.tasks import RewardOut, RewardSource, TaskContext, make_task
from wp2env.window import Window, tile

RENDER_MODES = ("human", "rgb_array", "rgb_array_list")
OBS_MODES = ("frame", "clip")
OUTPUTS = ("numpy", "torch")


class WorldPlay2VectorEnv(VectorEnv):
    """``num_envs`` episodes in one world, all stepped by one batched forward of one network.

    Spaces, rewards, starts and ends are those of `wp2env.env.WorldPlay2Env`, whose page also explains the arguments
    that both share. This class adds the following.

    ## Autoreset
    ``autoreset_mode`` is a `gymnasium.vector.AutoresetMode` or its name. With SAME_STEP (default) an episode that ends
    begins anew in the same step: the observation is the new episode's, the old one's last is in
    ``infos["final_obs"][i]`` and ``infos["final_info"]``, with the masks ``_final_obs`` and ``_final_info``. With
    NEXT_STEP the next step ignores the slot's action and returns the new episode's first observation, reward 0. With
    DISABLED the slot waits for ``reset(options={"reset_mask": mask})``. An autoreset draws from the bank of starts; in
    a world without one it repeats the slot's start with another seed.

    ## Seeds
    ``reset(seed=s)`` gives slot i the seed ``s + i``; a list gives one each, None in it keeps a slot's stream. A slot
    shows what a single environment with its seed and actions shows: exactly the same for the same number of slots and
    threads, and up to rounding otherwise.

    ## Arguments
    num_envs: slots.
    max_episode_steps: steps after which an episode is truncated; None or -1 for no limit.
    output: "numpy", or "torch" for observations (final ones too), rewards and ends as tensors on the world's device;
        infos are NumPy.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 9, "autoreset_mode": AutoresetMode.SAME_STEP}
    episodes_type: type[Episodes] = Episodes
    episodes: Episodes | None = None  # these two before anything can fail, for `close`
    _window: Window | None = None

    def __init__(
        self,
        num_envs: int = 1,
        world: Any = "doom",
        task: str | RewardSource | Callable[[TaskContext], Any] = "explore",
        action_mode: str = "dict",
        obs_mode: str = "frame",
        device: str = "cpu",
        *,
        dtype: str = "float32",
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        max_episode_steps: int | None = None,
        min_confidence: float | None = None,
        output: str = "numpy",
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
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}; a vector environment has at least 1 slot")
        if max_episode_steps is not None and max_episode_steps < 1 and max_episode_steps != -1:
            raise ValueError(f"max_episode_steps is {max_episode_steps}; give at least 1, or -1 for no limit")
        if min_confidence is not None and not np.isfinite(min_confidence):
            raise ValueError(f"min_confidence is {min_confidence}; give a number, or None for no limit")
        self.min_confidence = min_confidence
        self.obs_mode = _choice("obs_mode", obs_mode, OBS_MODES)
        self.output = _choice("output", output, OUTPUTS)
        self.render_mode = None if render_mode is None else _choice("render_mode", render_mode, RENDER_MODES)
        self.autoreset_mode = _autoreset(autoreset_mode)
        self.num_envs, self.info_frames = num_envs, info_frames
        self.max_episode_steps = None if max_episode_steps == -1 else max_episode_steps
        self.turns = Turns(max_pitch, max_yaw, pitch_bins, yaw_bins)
        source, handle = make_task(task), WorldHandle(world, device, dtype)
        bank = find_bank(starts, handle.folder)
        self.episodes = self.episodes_type(handle, num_envs, source, bank, sampling_steps, temperature)
        self._history: list[list[np.ndarray]] = [[] for _ in range(num_envs)]

        stream, clips = self.episodes.stream, self.episodes.slots.clips
        self.actions = ChunkActions(action_mode, self.turns, stream.latents_per_chunk, per_latent_actions)
        shape = clips.shape[1:] if obs_mode == "clip" else clips.shape[2:]
        self.single_observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.single_action_space = self.actions.space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.metadata = {
            "render_modes": list(RENDER_MODES),
            # Steps per second; whole, since `gymnasium.utils.play` takes nothing else.
            "render_fps": max(1, round(handle.get().config.video.frame_rate / self.episodes.chunk_frames)),
            "autoreset_mode": self.autoreset_mode,
            "torch": output == "torch",
        }

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes, in all slots or in those of ``options["reset_mask"]``.

        Options are explained in `WorldPlay2Env`; a list as an option's value gives one value per slot. ``options`` is
        left as it is: wrappers read the mask after us.

        Returns:
            Observations of all slots, and infos of those that were reset.

        Raises:
            ValueError: for malformed options or seeds; nothing has changed then.
        """
        options, episodes = options or {}, self.episodes
        mask = read_mask(options, self.num_envs)
        requests = read_requests(options, mask, episodes.stream.frame_shape, episodes.bank)
        seeds = read_seeds(seed, self.num_envs)
        never = np.flatnonzero(~(episodes.slots.ready | mask))
        if len(never):
            raise ResetNeeded(f"slot {never[0]} was never reset; the first reset must reach every slot")
        chosen = np.flatnonzero(mask).tolist()
        self.closed = False  # after `close` the world is made again
        self._begin(chosen, requests, seeds)
        infos: dict[str, Any] = {}
        for slot in chosen:
            infos = self._add_info(infos, self._reset_info(slot), slot)
        self._show()
        return self._observations(), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Generate one chunk in every slot.

        Returns:
            Observations, rewards (float64), terminated, truncated (bool), each ``[num_envs, ...]``, and infos.

        Raises:
            ValueError: for actions outside the space; nothing has changed then. For a task whose answer does not fit,
                or that gives no confidence with ``min_confidence``; the world has moved on then.
            gymnasium.error.ResetNeeded: for a slot that waits for its reset.
        """
        episodes = self.episodes
        episodes.check_ready()
        waiting = episodes.slots.ended.copy()
        if self.autoreset_mode is AutoresetMode.DISABLED and waiting.any():
            raise ResetNeeded(f"the episodes of slots {np.flatnonzero(waiting).tolist()} have ended; reset them first")
        rows, events = self.actions.read(actions, episodes.slots.views)
        # Only with NEXT_STEP can a slot be waiting here: it is stepped with the others, and then begins anew.
        out = episodes.advance(rows, events, ~waiting)
        rewards = np.where(waiting, 0.0, out.reward)
        terminated = np.asarray(out.terminated, dtype=bool) & ~waiting
        out_of_time, unsure = self._out_of_time() & ~waiting, self._unsure(out) & ~waiting
        truncated = out_of_time | unsure
        reasons = {int(slot): "confidence" if unsure[slot] else "time" for slot in np.flatnonzero(truncated)}
        episodes.slots.ended = terminated | truncated

        infos: dict[str, Any] = {}
        again = np.flatnonzero(waiting).tolist()
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            again = np.flatnonzero(episodes.slots.ended).tolist()
            last = self._observations()
            for slot in again:
                final = {"final_obs": last[slot], "final_info": self._step_info(slot, out, reasons.get(slot))}
                infos = self._add_info(infos, final, slot)
        self._remember_frames(set(range(self.num_envs)).difference(again))
        if again:
            self._begin(again, {slot: episodes.request_again(slot) for slot in again}, dict.fromkeys(again))
        for slot in range(self.num_envs):
            info = self._reset_info(slot) if slot in again else self._step_info(slot, out, reasons.get(slot))
            infos = self._add_info(infos, info, slot)
        self._show()
        return self._observations(), *map(self._given, (rewards, terminated, truncated)), infos

    def set_caption(
        self,
        scene: str | None = None,
        character: str | None = None,
        event: str | None = None,
        slots: int | Sequence[int] | None = None,
    ) -> None:
        """Exchange fields of the caption from the next step on, in the given slots or in all of them.

        None keeps a field, "None" empties it. A character set here is in force in both perspectives until the reset.

        Raises:
            ValueError: for a text that is none or a slot that does not exist; nothing has changed then.
        """
        self.episodes.check_ready()
        given = {"scene": scene, "character": character, "event": event}
        fields = caption_fields({name: text for name, text in given.items() if text is not None})
        self.episodes.set_caption(fields, self._read_slots(slots))

    def set_event(self, text: str | None, slots: int | Sequence[int] | None = None) -> None:
        """Announce an event, which stays in force until the next one; None ends it."""
        self.set_caption(event=NOTHING if text is None else text, slots=slots)

    @property
    def captions(self) -> list[StructuredCaption]:
        """The slots' captions as now in force."""
        self.episodes.check_ready()
        return list(self.episodes.stream.captions)

    @property
    def perspectives(self) -> np.ndarray:
        """The slots' present views, int64 ``[num_envs]``: 0 third person, 1 first person."""
        return self.episodes.slots.views.copy()

    @property
    def latency(self) -> float:
        """Seconds that the world took for the last step; not in `info`, which is deterministic."""
        return self.episodes.latency

    @property
    def task(self) -> RewardSource:
        """Where rewards and ends come from."""
        return self.episodes.task

    @property
    def np_random(self) -> tuple[np.random.Generator, ...]:
        """The slots' generators, which draw starts and episode seeds."""
        slots = self.episodes.slots
        for slot, generator in enumerate(slots.random):
            if generator is None:
                slots.random[slot], slots.seeds[slot] = seeding.np_random()
        return tuple(slots.random)

    @property
    def np_random_seed(self) -> tuple[int, ...]:
        """The seeds that the slots' generators were made from; -1 for one that was set by hand."""
        return tuple(self.episodes.slots.seeds) if self.np_random else ()

    def idle_action(self, slot: int = 0) -> Any:
        """One slot's action that does nothing and keeps its perspective."""
        row = np.zeros(ACTION_DIM, dtype=np.float32)
        row[PERSPECTIVE] = view = self.perspectives[slot]
        return self.actions.action(row, int(view))

    def get_state(self) -> EnvState:
        """The whole state: world, memory, generators, captions, task and steps; later steps do not change it."""
        return self.episodes.get_state()

    def set_state(self, state: EnvState) -> None:
        """Go back to a state of this environment or of one made with the same arguments.

        Raises:
            ValueError: for a state of another kind of environment; nothing has changed then.
        """
        self.episodes.set_state(state)
        self._history = [[] for _ in range(self.num_envs)]
        self._remember_frames(range(self.num_envs))

    def clone(self) -> WorldPlay2VectorEnv:
        """An independent environment in the same state, on the same network; it opens no window."""
        twin = copy.deepcopy(self)
        twin.render_mode = None if self.render_mode == "human" else self.render_mode
        return twin

    def render(self) -> tuple[Any, ...] | None:
        """The slots' newest frames, or with "rgb_array_list" those of every step since the last call or reset."""
        if self.render_mode is None:
            gymnasium.logger.warn(f"render() needs a render mode; make the environment with one of {RENDER_MODES}")
            return None
        self.episodes.check_ready()
        if self.render_mode == "rgb_array":
            return tuple(self.episodes.slots.frames.copy())
        if self.render_mode == "rgb_array_list":
            frames, self._history = self._history, [[] for _ in range(self.num_envs)]
            return tuple(frames)
        self._show()
        return None

    def render_tiled(self) -> np.ndarray:
        """All newest frames in one picture, uint8 ``[rows * H, columns * W, 3]``, whatever the render mode."""
        self.episodes.check_ready()
        return tile(self.episodes.slots.frames)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the window and let go of the running world."""
        if self._window is not None:
            self._window.close()
        self._window = None
        if self.episodes is not None:
            self.episodes.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_window": None}

    def _begin(
        self, chosen: Sequence[int], requests: Mapping[int, StartRequest], seeds: Mapping[int, int | None]
    ) -> None:
        self.episodes.begin(chosen, requests, seeds)
        for slot in chosen:
            self._history[slot] = []
        self._remember_frames(chosen)

    def _remember_frames(self, chosen: Sequence[int] | set[int]) -> None:
        if self.render_mode == "rgb_array_list":
            for slot in chosen:
                self._history[slot].append(self.episodes.slots.frames[slot].copy())

    def _show(self) -> None:
        if self.render_mode == "human":
            self._window = self._window or Window("WorldPlay2", self.metadata["render_fps"])
            self._window.show(self.render_tiled())

    def _observations(self) -> Any:
        slots = self.episodes.slots
        return self._given((slots.clips if self.obs_mode == "clip" else slots.frames).copy())

    def _given(self, array: np.ndarray) -> Any:
        """An array in the form that the user asked for; rewards become float32 tensors."""
        if self.output == "numpy":
            return array
        latents = self.episodes.stream.latents
        tensor = torch.from_numpy(array).to("cpu" if latents is None else latents.device)
        return tensor.float() if tensor.is_floating_point() else tensor

    def _reset_info(self, slot: int) -> dict[str, Any]:
        return {**self._info(slot), "start_index": self.episodes.slots.starts[slot].index}

    def _out_of_time(self) -> np.ndarray:
        limit = np.inf if self.max_episode_steps is None else self.max_episode_steps
        return self.episodes.slots.steps >= limit

    def _unsure(self, out: RewardOut) -> np.ndarray:
        """Where the task is less sure of what it says than it has to be, bool ``[num_envs]``."""
        if self.min_confidence is None:
            return np.zeros(self.num_envs, dtype=bool)
        if out.confidence is None:
            raise ValueError(
                f"min_confidence is {self.min_confidence} and the task {self.task.name!r} does not tell how sure it "
                "is; choose a task that does, or leave min_confidence out"
            )
        return np.asarray(out.confidence) < self.min_confidence

    def _step_info(self, slot: int, out: RewardOut, truncated_by: str | None) -> dict[str, Any]:
        info = self._info(slot)
        info["reward_terms"] = {name: float(value[slot]) for name, value in out.terms.items()}
        if out.confidence is not None:
            info["reward_confidence"] = float(out.confidence[slot])
        if truncated_by is not None:
            info["truncation_reason"] = truncated_by
        return info

    def _info(self, slot: int) -> dict[str, Any]:
        episodes = self.episodes
        info: dict[str, Any] = {
            "caption": episodes.stream.captions[slot].as_dict(),
            "step": int(episodes.slots.steps[slot]),
            "reward_source": episodes.task.name,
        }
        if self.info_frames:
            info["frames"] = episodes.slots.clips[slot].copy()
        return info

    def _read_slots(self, slots: int | Sequence[int] | None) -> list[int]:
        chosen = range(self.num_envs) if slots is None else np.atleast_1d(slots)
        if slots is not None and chosen.dtype == bool:
            if chosen.shape != (self.num_envs,):
                raise ValueError(f"the mask of slots has the shape {chosen.shape}; give ({self.num_envs},) or numbers")
            chosen = np.flatnonzero(chosen)
        chosen = [int(slot) if isinstance(slot, np.integer) else slot for slot in chosen]
        for slot in chosen:
            if slot not in range(self.num_envs):
                raise ValueError(f"slot {slot} does not exist; this environment has {self.num_envs}, numbered from 0")
        return list(chosen)


def _choice(name: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; choose one of {', '.join(choices)}")
    return value


def _autoreset(mode: AutoresetMode | str) -> AutoresetMode:
    """The mode of a member, its name ("SAME_STEP") or its value ("SameStep"), so that specs can hold a text."""
    for member in AutoresetMode:
        if mode in (member, member.name, member.value):
            return member
    raise ValueError(f"autoreset_mode is {mode!r}; choose one of {', '.join(member.name for member in AutoresetMode)}")
