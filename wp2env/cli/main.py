"""``wp2``: finds the command that was asked for, imports the room that does it and nothing else, and runs it."""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import NoReturn

DISTRIBUTION = "worldplay2-gym"
DESCRIPTION = "WorldPlay2-Gym: a world model of Doom that you can play, look at, train and train agents in."
EXAMPLES = """\
examples:
  wp2 demo                                       a video of the bundled world under a control script
  wp2 play                                       walk through it with the keyboard
  wp2 info                                       what the bundled world is and what is installed
  wp2 record doom --out data/train --clips 500   recordings of the true game, to train on
  wp2 train doom --curriculum --data data/train --out runs/mine   a world of your own

`wp2 COMMAND --help` shows the options of a command, with examples.
"""
INTERRUPTED = 130
ERROR = 2  # exit code of everything that the user can mend
EXTRAS = {  # a package and the extra that it belongs to
    "vizdoom": "doom",
    "pygame": "play",
    "stable_baselines3": "agents",
    "sb3_contrib": "agents",
    "diffusers": "large",
    "transformers": "large",
    "huggingface_hub": "large",
    "minari": "data",
    "h5py": "data",
    "pyarrow": "data",
    "ray": "distributed",
}


@dataclass(frozen=True)
class Command:
    """One command: the words that name it and where it lives. Its module is imported only when used."""

    words: tuple[str, ...]
    help: str
    examples: str
    module: str
    options: str = "add_arguments"  # the module's function that declares the options
    action: str = "main"  # and the one that takes them


COMMANDS = (
    Command(
        ("demo",),
        "write a video of a world under a control script",
        """\
  wp2 demo
  wp2 demo --actions "w-16,w+left-8,s+space-4" --out walk.gif
  wp2 demo --actions "w-48" --views "fps-24,tps-24" --events "None-16,grey fog rolls in-14,None-18"
  wp2 demo --world runs/autoregressive/world --seed 7 --steps 8""",
        "wp2env.cli.demo",
    ),
    Command(
        ("play",),
        "walk through a world with the keyboard",
        """\
  wp2 play
  wp2 play --seed 3 --zoom 10
  wp2 play --world runs/autoregressive/world --scene "a room with red walls, dim"
  w a s d walk, the arrows look around, space jumps, v changes the view, Enter types an event, r begins anew.""",
        "wp2env.cli.play",
    ),
    Command(
        ("info",),
        "show what a world is and which versions are installed",
        """\
  wp2 info
  wp2 info --world runs/autoregressive/world""",
        "wp2env.cli.info",
    ),
    Command(
        ("record", "doom"),
        "record the true game",
        """\
  wp2 record doom --out data/train --clips 500 --workers 2
  wp2 record doom --out data/test --clips 64 --frames 72 --split test
  wp2 record doom --out data/long --clips 500 --frames 256 --play revisits
  wp2 record doom --out data/mirror --clips 64 --frames 257 --split test --play mirror
  wp2 record doom --out data/tasks --clips 1500 --frames 40 --play tasks
  The same command again continues a recording that was interrupted.""",
        "world_model.data.doom.record",
    ),
    Command(
        ("import",),
        "turn public videos with camera poses into recordings to train on",
        """\
  wp2 import sekai --source data/sekai --out data/sekai-64
  wp2 import spatialvid --source data/spatialvid --out data/spatialvid-480p --size 448x832 --rate 16
  wp2 import folder --source data/walks --out data/walks-64 --licence CC-BY-4.0
  wp2 import folder --source data/walks --out data/sure --licence CC0 --skip-broken --settings limits.json
  Nothing is downloaded; the folder's clips.jsonl tells what became of every clip.""",
        "world_model.data.public.command",
    ),
    Command(
        ("train", "doom"),
        "train a world on recordings of the game, stage by stage",
        """\
  wp2 train doom --curriculum --data data/revisits data/train --out runs/all
  wp2 train doom --curriculum --data data/train --out runs/more --start doom --minutes navigation=5 autoregressive=30
  wp2 train doom --stage autoregressive --data data/revisits --out runs/longer --start runs/all/history --minutes 120
  wp2 train doom --stage few_step --data data/train --out runs/two --start runs/longer --set "few_step.blocks=[16, 16]"
  wp2 train doom --stage stable_forcing --data data/train --out runs/sf --start runs/two --teacher runs/all/history
  wp2 train doom --stage navigation --data data/sekai --out runs/large --start worlds/start   # from `wp2 convert`
  wp2 train doom --stage navigation --expert high --data data/sekai --out runs/high --start worlds/pair   # of two
  wp2 demo --world runs/all/stable_forcing/world
  torchrun --standalone --nproc-per-node 2 -m wp2env.cli train doom --curriculum --data data/train --out runs/all
  The same command again continues a run that was interrupted. Several processes, started by torchrun or accelerate
  launch, share every batch and end where one would.""",
        "world_model.training.cli",
    ),
    Command(
        ("train", "reward"),
        "learn when a task is fulfilled in a world, from recordings of the game",
        """\
  wp2 train reward --world worlds/mine --data data/tasks --validation data/held-out --out worlds/mine
  wp2 train reward --data data/tasks --validation data/held-out --out reward.safetensors --cache data/runs --minutes 5
  Recordings to learn from: wp2 record doom --play tasks --clips 1500 --frames 40 --out data/tasks
  and to calibrate on:      the same with --split validation --clips 200 --out data/held-out
  The world's environments then know the tasks "walk to the red ball", "collect health packs" and "reach the exit".""",
        "world_model.training.reward",
    ),
    Command(
        ("export",),
        "write the newest checkpoint of a training run as a world",
        """\
  wp2 export runs/all/autoregressive worlds/mine
  wp2 export runs/all/stable_forcing worlds/fast --fused""",
        "world_model.training.cli",
        "add_export_arguments",
        "export_main",
    ),
    Command(
        ("bank",),
        "give a world recorded starts to begin from",
        """\
  wp2 bank --data data/test --world worlds/mine
  wp2 bank --data data/test --world worlds/mine --count 20
  A bank that the world has already is replaced.""",
        "wp2env.cli.bank",
    ),
    Command(
        ("starts", "doom"),
        "record where the episodes of a task begin, for the generated world and the true game alike",
        """\
  wp2 starts doom --task "walk to the red ball" --count 300 --split train --out data/ball-train.safetensors
  wp2 starts doom --task "reach the exit" --count 50 --split test --seed 7 --out data/exit-test.safetensors
  Give the file as `starts=` to WorldPlay2-v0 and to WorldPlay2-TrueGame-v0.""",
        "wp2env.cli.starts",
    ),
    Command(
        ("starts", "recordings"),
        "take moments on the way to a goal from recordings, for short imagined episodes",
        """\
  wp2 starts recordings --task "walk to the red ball" --data data/tasks --count 2000 --out data/ball-moments.safetensors
  wp2 train-agent --starts data/ball-moments.safetensors --episode-steps 16 --out runs/agent
  Recordings: wp2 record doom --play tasks --clips 1500 --frames 40 --out data/tasks
  Give the file as `starts=` to WorldPlay2-v0; the true game does not know the way to such a moment.""",
        "wp2env.cli.starts",
        "add_recordings_arguments",
        "recordings_main",
    ),
    Command(
        ("plan",),
        "show how much memory a world needs on each GPU",
        """\
  wp2 plan --preset worldplay2-14b --gpus 8
  wp2 plan --preset worldplay2-14b --gpus 64 --train navigation --frames 125 --batch 2
  wp2 plan --preset worldplay2-14b --gpus 2 --inference --frames 957
  wp2 plan --preset wan2.1-1.3b --train autoregressive --frames 29
  wp2 plan --preset doom-gpu --train navigation --gpus 2
  Nothing is loaded; no GPU is needed.""",
        "wp2env.cli.plan",
    ),
    Command(
        ("convert",),
        "turn published weights of a large world, or public video weights, into our own layout",
        """\
  wp2 convert downloads/WorldPlay2-Fast worlds/fast --variant fast
  wp2 convert downloads/WorldPlay2-AR worlds/ar --variant ar --dtype fp32
  wp2 convert downloads/low_noise_model.safetensors worlds/bi --variant bi --expert low
  wp2 convert aejion/WorldPlay2-Fast worlds/fast --variant fast --companions Wan-AI/Wan2.2-I2V-A14B-Diffusers
  wp2 convert Wan-AI/Wan2.2-TI2V-5B-Diffusers worlds/start --variant base --preset wan2.2-5b
  Hub ids, ORG/NAME or ORG/NAME@REVISION, are downloaded. The published weights are for non-commercial use
  (CC-BY-NC-4.0).""",
        "wp2env.cli.convert",
    ),
    Command(
        ("generate",),
        "write the videos that a published control JSON asks a large world for",
        """\
  wp2 generate --input-json examples.json --world worlds/fast --codec Wan2.1_VAE.safetensors --text umt5-xxl
  wp2 generate --input-json examples.json --world worlds/fast --check
  wp2 generate --input-json examples.json --world worlds/ar --codec wan/vae --text umt5-xxl --out videos --steps 20
  wp2 generate --input-json examples.json --world worlds/fast --weights int8 --swap-experts
  torchrun --standalone --nproc-per-node 8 -m wp2env.cli generate --input-json examples.json --world worlds/fast
  Several processes, started by torchrun, have a part of every block on a GPU each and make each video together.""",
        "wp2env.cli.generate",
    ),
)
GROUPS = {
    "record": "record the true game, or a policy in a world",
    "train": "train a world, or what rewards in it",
    "starts": "record where episodes begin",
}


class _Parser(argparse.ArgumentParser):
    """Answers a mistake with one sentence and the examples."""

    def error(self, message: str) -> NoReturn:
        examples = "" if self.epilog is None else f"\n\n{self.epilog.strip()}"
        self.exit(ERROR, f"{self.prog}: error: {message}{examples}\n\n`{self.prog} --help` says more.\n")


def main(arguments: Sequence[str] | None = None, commands: Sequence[Command] = COMMANDS) -> int:
    """Run ``wp2`` with these commands and return its exit code; floors above this one add commands of their own."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    command = _chosen(arguments, commands)
    name = " ".join(("wp2", *command.words)) if command else "wp2"
    try:
        settings = _parser(command, commands).parse_args(arguments)
        return getattr(_module_of(command), command.action)(settings) or 0
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as end:
        if not isinstance(end.code, str):
            raise
        problem = end.code.removeprefix(name.removeprefix("wp2 ") + ": ")
        if isinstance(end.__context__, KeyboardInterrupt):
            print(f"{name}: {problem}", file=sys.stderr)
            return INTERRUPTED
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        if arguments[:1] == ["--debug"]:
            raise
        problem = _sentence(error)
    print(f"{name}: error: {problem}", file=sys.stderr)
    return ERROR


def _chosen(arguments: Sequence[str], commands: Sequence[Command]) -> Command | None:
    """The command that the first words name."""
    words = tuple(word for word in arguments if not word.startswith("-"))
    return next((command for command in commands if words[: len(command.words)] == command.words), None)


def _module_of(command: Command) -> ModuleType:
    """The module of a command, imported while nothing looks for garbage: what it makes stays, and to look through all
    of it, now and when the process ends, would take as long as half the import."""
    if command.module in sys.modules:
        return sys.modules[command.module]
    gc.disable()
    try:
        return importlib.import_module(command.module)
    finally:
        gc.freeze()
        gc.enable()


def _sentence(error: Exception) -> str:
    """What to tell the user about an error."""
    if isinstance(error, ImportError) and error.name in EXTRAS:
        extra = f'pip install "{DISTRIBUTION}[{EXTRAS[error.name]}]"'
        return f"this needs the package {error.name}, which is not installed; install it with {extra}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def _parser(chosen: Command | None, commands: Sequence[Command] = COMMANDS) -> argparse.ArgumentParser:
    """The whole tree of commands; only the chosen one has its options, since these live in its module."""
    style = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = _Parser(prog="wp2", description=DESCRIPTION, epilog=EXAMPLES, **style)
    parser.add_argument("--version", action="version", version=f"wp2 {_version()}")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from; comes before the command")
    places = {(): parser.add_subparsers(title="commands", metavar="COMMAND", required=True)}
    for command in commands:
        group, texts = command.words[:-1], {"help": command.help, "epilog": f"examples:\n{command.examples}", **style}
        if group not in places:
            texts["help"] = GROUPS[group[0]]
            branch = places[()].add_parser(group[0], description=GROUPS[group[0]], **texts)
            places[group] = branch.add_subparsers(title="worlds", metavar="WORLD", required=True)
        own = places[group].add_parser(command.words[-1], description=command.help, **{**texts, "help": command.help})
        if command is chosen:
            getattr(_module_of(command), command.options)(own)
    return parser


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "(not installed)"
