"""Stable-Baselines3 on a batched environment: one network for all slots, instead of one environment per process."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnv

from wp2env.infos import slot_info

LAST = ("final_obs", "final_info")


class StableBaselinesVecEnv(VecEnv):
    """A `gymnasium.vector.VectorEnv` with SAME_STEP autoreset as the `VecEnv` that Stable-Baselines3 takes.

    >>> env = gymnasium.make_vec("wp2env:WorldPlay2-v0", num_envs=16, action_mode="multidiscrete")  # doctest: +SKIP
    >>> PPO("CnnPolicy", StableBaselinesVecEnv(env)).learn(100_000)                                 # doctest: +SKIP

    The info of a slot that ends holds ``terminal_observation``, ``TimeLimit.truncated`` and ``episode`` (return,
    length and seconds, as `Monitor` writes them), besides what the environment tells.

    ``get_attr``, ``set_attr`` and ``env_method`` speak to the one environment behind all slots; a method that takes
    ``slots``, such as ``set_event``, is called for the chosen ones.

    Raises:
        ValueError: for another autoreset mode, or an environment that gives tensors.
    """

    def __init__(self, env: VectorEnv) -> None:
        mode = env.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.SAME_STEP:
            raise ValueError(f"autoreset_mode is {mode}; make the environment with autoreset_mode=SAME_STEP")
        if env.metadata.get("torch"):
            raise ValueError("the environment gives tensors; make it with output='numpy'")
        self.env = env
        self._actions: Any = None
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, dtype=np.int64)
        self._began = time.monotonic()

    def reset(self) -> np.ndarray:
        """Begin all episodes, with the seeds and options that were set before."""
        seed = self._seeds if any(seed is not None for seed in self._seeds) else None
        names = {name for options in self._options for name in options}
        options = {name: [own.get(name) for own in self._options] for name in names}
        observations, infos = self.env.reset(seed=seed, options=options)
        self.reset_infos = [slot_info(infos, slot) for slot in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        self._returns[:], self._lengths[:] = 0, 0
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        observations, rewards, terminated, truncated, infos = self.env.step(self._actions)
        dones = terminated | truncated
        self._returns += rewards
        self._lengths += 1
        told = [self._info(infos, slot, bool(truncated[slot] and not terminated[slot])) for slot in self._all()]
        self._returns[dones], self._lengths[dones] = 0, 0
        return observations, rewards.astype(np.float32), dones, told

    def _info(self, infos: dict[str, Any], slot: int, truncated: bool) -> dict[str, Any]:
        info = slot_info(infos, slot)
        last, end = (info.pop(name, None) for name in LAST)
        if last is not None:
            info = {**end, "terminal_observation": last}
            seconds = round(time.monotonic() - self._began, 6)
            info["episode"] = {"r": float(self._returns[slot]), "l": int(self._lengths[slot]), "t": seconds}
        return {**info, "TimeLimit.truncated": truncated}

    def _all(self) -> range:
        return range(self.num_envs)

    def close(self) -> None:
        self.env.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        return list(self.env.render() or [None] * self.num_envs)

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        value = getattr(self._holder(attr_name), attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self._holder(attr_name), attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        method, chosen = getattr(self._holder(method_name), method_name), list(self._get_indices(indices))
        if indices is not None and "slots" in inspect.signature(method).parameters:
            kwargs["slots"] = chosen
        value = method(*args, **kwargs)
        return [value for _ in chosen]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]

    def _holder(self, name: str) -> VectorEnv:
        """The outermost that has the attribute: Gymnasium's vector wrappers hide what they do not know."""
        return self.env if hasattr(self.env, name) else self.env.unwrapped
