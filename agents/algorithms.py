"""The algorithms of Stable-Baselines3, set for small pictures and short episodes on a CPU."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor, nn

from agents.policies.card import ALGORITHMS
from agents.policies.convolutions import FEATURES, convolutions
from agents.policies.trained import algorithm_class

MINIBATCH = 128
DISCOUNT = 0.95  # episodes are a few dozen steps long
SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"n_steps": 32, "n_epochs": 4, "learning_rate": 5e-4, "ent_coef": 0.01, "gae_lambda": 0.95},
    "a2c": {"n_steps": 8, "learning_rate": 7e-4, "ent_coef": 0.01},
    "dqn": {
        "buffer_size": 50_000,
        "learning_starts": 2_000,
        "batch_size": 64,
        "train_freq": 1,
        "gradient_steps": 4,
        "target_update_interval": 2_000,
        "exploration_fraction": 0.3,
        "learning_rate": 3e-4,
    },
    "recurrent-ppo": {"n_steps": 32, "n_epochs": 4, "learning_rate": 5e-4, "ent_coef": 0.01, "gae_lambda": 0.95},
}


class SmallPictures(BaseFeaturesExtractor):
    """Pictures ``[B, C, H, W]`` in [0, 1] to features ``[B, 128]``."""

    def __init__(self, observation_space: gymnasium.spaces.Box, features_dim: int = FEATURES) -> None:
        super().__init__(observation_space, features_dim)
        channels, *size = observation_space.shape
        self.look, seen = convolutions(channels, tuple(size))
        self.gather = nn.Sequential(nn.Linear(seen, features_dim), nn.ReLU())

    def forward(self, pictures: Tensor) -> Tensor:
        return self.gather(self.look(pictures))


def make_algorithm(name: str, env: VecEnv, seed: int, log: str | None = None, device: str = "cpu") -> Any:
    """A fresh model of ``stable_baselines3`` or ``sb3_contrib`` for a batched environment.

    Raises:
        ValueError: for an unknown algorithm, or one that does not take the environment's actions.
        ImportError: when its package is not installed.
    """
    if name not in ALGORITHMS:
        raise ValueError(f"the algorithm is {name!r}; choose one of {', '.join(ALGORITHMS)}")
    if name == "dqn" and not isinstance(env.action_space, gymnasium.spaces.Discrete):
        raise ValueError(f"dqn does not take actions of {env.action_space}; make the environment 'discrete'")
    settings = dict(SETTINGS[name])
    if "n_epochs" in settings:  # minibatches are as long as fits a rollout exactly
        settings["batch_size"] = math.gcd(settings["n_steps"] * env.num_envs, MINIBATCH)
    return algorithm_class(name)(
        "CnnLstmPolicy" if name == "recurrent-ppo" else "CnnPolicy",
        env,
        gamma=DISCOUNT,
        policy_kwargs={"features_extractor_class": SmallPictures, "net_arch": []},
        tensorboard_log=log,
        seed=seed,
        device=device,
        **settings,
    )
