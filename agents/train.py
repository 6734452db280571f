"""Training an agent, from top to bottom: an environment, an algorithm, and what is kept along the way.

    out/run.json                what the run is of; another one is refused in the same folder
    out/step-00010240/          a checkpoint: policy.zip and policy.json, for `load_policy`
    out/evaluations.json        how well it did on the validation starts, along the way
    out/logs/                   for TensorBoard

A run goes on from its newest checkpoint; a signal writes one before it stops.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gymnasium.vector import AutoresetMode, VectorEnv
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack
from tqdm import tqdm

from agents.algorithms import make_algorithm
from agents.checkpoints import remember, resume, save_checkpoint
from agents.keeping import EVALUATIONS, Judge, Keeper, Keeping, Validation
from agents.places import DEFAULT_TASK, EPISODE_STEPS, WORLD, make_env
from agents.policies.card import PolicyCard
from agents.sb3 import StableBaselinesVecEnv
from world_model.training.interruption import Interruption


@dataclass(frozen=True)
class AgentRun:
    """What an agent learns, where, and how."""

    task: Any = DEFAULT_TASK  # as `wp2env.tasks.make_task` takes it
    algorithm: str = "ppo"
    place: str = WORLD
    world: str = "doom"
    starts: str | None = None  # file; None for the world's own
    envs: int = 16
    episode_steps: int = EPISODE_STEPS
    action_mode: str = "discrete"
    frame_stack: int = 1  # newest pictures that the agent sees together
    seed: int = 0
    dtype: str = "float32"  # that a generated world calculates in

    def __post_init__(self) -> None:
        for name in ("envs", "episode_steps", "frame_stack"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give at least 1")

    @property
    def task_name(self) -> str:
        """The task's name, for a task that is an object too."""
        return self.task if isinstance(self.task, str) else getattr(self.task, "name", type(self.task).__name__)

    def settings(self) -> dict[str, Any]:
        """All of it, JSON-able."""
        return {**asdict(self), "task": self.task_name}

    def card(self, frame_size: tuple[int, int], steps: int) -> PolicyCard:
        """What a policy of this run says about itself after so many steps."""
        return PolicyCard(
            self.algorithm, self.action_mode, frame_size, self.frame_stack, self.task_name, self.place, self.world,
            steps, self.seed,
        )  # fmt: skip

    @contextmanager
    def env(
        self, num_envs: int, starts: str | None, mode: AutoresetMode, device: str, temperature: float = 1.0
    ) -> Iterator[VectorEnv]:
        """Slots to live in, closed in the end, with a copy of the task of their own."""
        env = make_env(
            self.place, num_envs, task=copy.deepcopy(self.task), starts=starts, world=self.world,
            action_mode=self.action_mode, autoreset_mode=mode, max_episode_steps=self.episode_steps,
            dtype=self.dtype, device=device, temperature=temperature,
        )  # fmt: skip
        try:
            yield env
        finally:
            env.close()


def train_agent(
    run: AgentRun,
    steps: int,
    out: Path,
    *,
    validation: Validation | None = None,
    keeping: Keeping | None = None,
    device: str = "cpu",
) -> Path:
    """Train until ``steps`` environment steps of all slots together are done, or a signal asks to stop.

    Args:
        out: folder of the run; one that holds it already is continued.
        validation: None to evaluate nothing on the way.
        keeping: when checkpoints are written.
        device: of the generated world; the agent itself is small and learns on the CPU.

    Returns:
        The newest checkpoint's folder. Its card tells after how many steps: fewer than asked for after a signal.

    Raises:
        ValueError: for wrong settings, or a folder that holds another run.
        ImportError: when the algorithm's package is not installed.
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}; give at least 1")
    log = str(out / "logs")
    with ExitStack() as stack:
        slots, model, card = stack.enter_context(_beginning(run, device))
        judge = None
        if validation is not None:
            envs = min(run.envs, validation.episodes)
            other = stack.enter_context(run.env(envs, validation.starts, AutoresetMode.DISABLED, device))
            judge = Judge(other, validation, run.episode_steps, run.seed, out / EVALUATIONS)

        remember(out, run.settings())  # not before everything is made, so that mistakes leave nothing behind
        model = resume(out, slots, run.seed) or model
        model.tensorboard_log = log  # the folder may have been moved
        interruption = stack.enter_context(Interruption())
        bar = stack.enter_context(tqdm(total=steps, initial=model.num_timesteps, unit="step", desc=run.algorithm))
        keeper = Keeper(out, card, keeping or Keeping(), judge, interruption, bar)
        model.learn(
            max(0, steps - model.num_timesteps), callback=keeper, tb_log_name=run.algorithm, reset_num_timesteps=False
        )
        return keeper.finish()


def untrained_agent(run: AgentRun, out: Path, *, device: str = "cpu") -> Path:
    """Write the agent as it is before it has learned anything; `train_agent` goes on from there.

    Returns:
        The folder of the checkpoint after 0 steps.

    Raises:
        ValueError, ImportError: as `train_agent`.
    """
    with _beginning(run, device) as (_, model, card):
        remember(out, run.settings())
        return save_checkpoint(out, model, card(0))[0]


@contextmanager
def _beginning(run: AgentRun, device: str) -> Iterator[tuple[VecEnv, Any, Callable[[int], PolicyCard]]]:
    """Slots to learn in, a fresh model, and its card after so many steps."""
    with run.env(run.envs, run.starts, AutoresetMode.SAME_STEP, device) as env:
        slots = StableBaselinesVecEnv(env)
        if run.frame_stack > 1:
            slots = VecFrameStack(slots, run.frame_stack)
        model = make_algorithm(run.algorithm, slots, run.seed)
        yield slots, model, partial(run.card, env.single_observation_space.shape[:2])
