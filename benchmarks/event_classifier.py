"""Which kind of event makes one video differ from its twin? A small network that learned it from true twins.

It sees both videos at 32 x 32 pixels, every second frame, and answers with one of the twenty event kinds or
"nothing". What it is asked about later are generated videos, so in training the change is made fainter by up to 70 %,
both twins are blurred, the one with the event is bent by up to a pixel, and smooth noise is added to each; what
differs by that alone is "nothing".

Of true twins of the validation split the weights that are shipped name 69 % (among the first three answers: 87 %).
Light, weather, sky and what tints the view are told apart almost always; what is a few pixels large here is mixed up:
objects that appear or vanish, barrels, creatures that fall. Scores are therefore given beside this ceiling.

examples:
  python -m benchmarks.event_classifier --out benchmarks/weights/events.safetensors --threads 1
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import safe_open, save_file
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from benchmarks import report
from benchmarks.twins import HORIZON, Twins, load_twins
from world_model.data.doom.events import BUILDERS

WEIGHTS = Path(__file__).parent / "weights" / "events.safetensors"
NOTHING = "nothing"
ANSWERS = (*BUILDERS, NOTHING)
SIDE = 32  # pixels
SAMPLED = slice(1, HORIZON, 2)  # of the frames
TRAIN_PER_KIND, VALIDATION_PER_KIND = 100, 20
CONTEXT = 8  # frames before the event in what is recorded for training; the network does not see them

EPOCHS, BATCH, LEARNING_RATE, WEIGHT_DECAY = 25, 64, 2e-3, 0.05
NOTHING_SHARE = 0.08  # of a batch
FAINTEST = 0.3  # share of a true change; which kind a change is does not depend on its strength
BEND = 2.0 / SIDE  # one pixel, in the units of `grid_sample`
NOISE = 0.04  # standard deviation of the smooth noise at most; frames are in [0, 1]
SMOOTH = 8  # pixels between independent values of noise and bending


class EventClassifier(nn.Module):
    """Twins ``[B, T, 3, 32, 32]`` each, in [0, 1] -> logits ``[B, len(ANSWERS)]``."""

    def __init__(self) -> None:
        super().__init__()
        self.frame = nn.Sequential(
            nn.Conv2d(6, 24, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Conv2d(24, 48, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Conv2d(48, 64, 3, stride=2, padding=1),
            nn.GELU(),
        )
        frames = len(range(HORIZON)[SAMPLED])
        self.summary = nn.Linear(2 * 64, 48)  # of one frame: means and maxima over positions
        self.answer = nn.Sequential(nn.Linear(frames * 48, 128), nn.GELU(), nn.Linear(128, len(ANSWERS)))

    def forward(self, without: Tensor, shown: Tensor) -> Tensor:
        b, t = without.shape[:2]
        maps = self.frame(torch.cat([without - 0.5, 2 * (shown - without)], dim=2).flatten(0, 1)).flatten(2)
        features = self.summary(torch.cat([maps.mean(-1), maps.amax(-1)], dim=-1))
        return self.answer(functional.gelu(features).reshape(b, -1))


def prepare(frames: Tensor | np.ndarray) -> Tensor:
    """Frames uint8 ``[B, HORIZON, H, W, 3]`` as the network sees them: ``[B, T, 3, 32, 32]`` in [0, 1]."""
    sampled = torch.as_tensor(frames)[:, SAMPLED].movedim(-1, -3).float() / 255
    small = functional.interpolate(sampled.flatten(0, 1), size=(SIDE, SIDE), mode="area")
    return small.unflatten(0, sampled.shape[:2])


@torch.inference_mode()
def classify(model: EventClassifier, without: Tensor | np.ndarray, shown: Tensor | np.ndarray) -> Tensor:
    """Logits ``[B, len(ANSWERS)]`` for twins of uint8 frames ``[B, HORIZON, H, W, 3]``."""
    return model(prepare(without), prepare(shown))


def is_among(logits: Tensor, kinds: Sequence[str], top: int) -> np.ndarray:
    """Whether each kind is among the ``top`` first answers: bool ``[B]``."""
    wanted = torch.tensor([ANSWERS.index(kind) for kind in kinds])
    return (logits.topk(top, dim=-1).indices == wanted[:, None]).any(-1).numpy()


def load_classifier(path: Path = WEIGHTS) -> EventClassifier:
    """The trained network.

    Raises:
        ValueError: when it was trained for other event kinds than there are now.
    """
    model = EventClassifier()
    with safe_open(path, framework="pt") as file:
        trained_for = tuple(file.metadata()["answers"].split())
        if trained_for != ANSWERS:
            raise ValueError(
                f"{path} knows the events {', '.join(trained_for)}, and there are {', '.join(ANSWERS)}; train it anew "
                "with python -m benchmarks.event_classifier"
            )
        model.load_state_dict({name: file.get_tensor(name) for name in file.keys()})
    return model.eval().requires_grad_(False)


# ---- training


def _smooth(shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
    """Unit Gaussian noise ``[*shape, 32, 32]`` that is independent only ``SMOOTH`` pixels apart."""
    coarse = torch.randn(*shape, SIDE // SMOOTH, SIDE // SMOOTH, generator=generator)
    return functional.interpolate(coarse.flatten(0, 1), size=(SIDE, SIDE), mode="bilinear").unflatten(0, shape[:2])


def _disturb(frames: Tensor, blurred: Tensor, generator: torch.Generator) -> Tensor:
    """Videos ``[B, T, 3, 32, 32]`` as a generated world might show them; ``blurred`` bool ``[B]``."""
    coarse = functional.avg_pool2d(frames.flatten(0, 1), 2)
    soft = functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear").view_as(frames)
    level = NOISE * torch.rand(len(frames), 1, 1, 1, 1, generator=generator)
    return torch.where(blurred[:, None, None, None, None], soft, frames) + level * _smooth(
        tuple(frames.shape[:3]), generator
    )


def _bend(frames: Tensor, generator: torch.Generator) -> Tensor:
    """Videos whose every frame is bent smoothly, by a pixel or so."""
    b, t = frames.shape[:2]
    strength = BEND * torch.rand(b, 1, 1, 1, 1, generator=generator)
    offsets = (strength * _smooth((b, t, 2), generator)).flatten(0, 1).movedim(1, -1)
    steps = (torch.arange(SIDE) + 0.5) * (2 / SIDE) - 1
    grid = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), dim=-1)
    bent = functional.grid_sample(frames.flatten(0, 1), grid + offsets, padding_mode="border", align_corners=False)
    return bent.view_as(frames)


def disturbed(without: Tensor, shown: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Twins as a generated world might show them: the change fainter, half of them mirrored."""
    strength = FAINTEST + (1 - FAINTEST) * torch.rand(len(without), 1, 1, 1, 1, generator=generator)
    shown = torch.lerp(without, shown, strength)
    blurred, mirrored = torch.rand(2, len(without), generator=generator) < 0.5
    videos = [_disturb(without, blurred, generator), _bend(_disturb(shown, blurred, generator), generator)]
    return tuple(torch.where(mirrored[:, None, None, None, None], video.flip(-1), video) for video in videos)


def _tensors(twins: Sequence[Twins]) -> tuple[Tensor, Tensor, Tensor]:
    """Both videos as the network sees them and the right answers, int64 ``[B]``."""
    without, shown = (torch.cat([prepare(pair.after[side][None]) for pair in twins]) for side in (0, 1))
    return without, shown, torch.tensor([ANSWERS.index(pair.kind) for pair in twins])


def train(twins: Sequence[Twins], seed: int = 0, epochs: int = EPOCHS) -> EventClassifier:
    """Train a new network on true twins; the same seed gives the same network on the same machine."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = EventClassifier()
    without, shown, answers = _tensors(twins)
    steps = epochs * -(-len(twins) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    with tqdm(total=steps, unit="step", desc="training") as bar:
        for _ in range(epochs):
            for rows in torch.randperm(len(twins), generator=generator).split(BATCH):
                idle = torch.rand(len(rows), generator=generator) < NOTHING_SHARE
                other = torch.where(idle[:, None, None, None, None], without[rows], shown[rows])
                wanted = torch.where(idle, ANSWERS.index(NOTHING), answers[rows])
                loss = functional.cross_entropy(model(*disturbed(without[rows], other, generator)), wanted)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                bar.update()
                bar.set_postfix(loss=f"{loss.item():.3f}")
    return model.eval().requires_grad_(False)


def save_classifier(model: EventClassifier, path: Path) -> None:
    """Write the weights and the answers they stand for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(model.state_dict(), path, metadata={"answers": " ".join(ANSWERS)})
    path.chmod(0o644)  # safetensors writes for the owner alone
    print(f"wrote {path}")


def main(settings: argparse.Namespace) -> None:
    """Train the network, test it on twins of other levels and write it."""
    began = time.monotonic()
    options = {"context": CONTEXT, "size": settings.size, "seed": settings.seed}
    twins = load_twins(settings.data, split="train", per_kind=TRAIN_PER_KIND, **options)
    held_out = load_twins(settings.validation, split="validation", per_kind=VALIDATION_PER_KIND, **options)
    model = train(twins, settings.seed, settings.epochs)
    without, shown, _ = _tensors(held_out)
    with torch.inference_mode():
        logits = model(without, shown)
    kinds = [pair.kind for pair in held_out]
    hits = {top: is_among(logits, kinds, top) for top in (1, 3)}
    rows = [
        [kind, *(f"{hits[top][[k == kind for k in kinds]].mean():.2f}" for top in hits)]
        for kind in dict.fromkeys(kinds)
    ]
    rows.append(
        ["all", *(report.bootstrap(hits[top], groups=[pair.level for pair in held_out]).text(2) for top in hits)]
    )
    print(report.markdown_table(["true twins of validation levels", "first answer", "first three"], rows))
    save_classifier(model, settings.out)
    print(f"{time.monotonic() - began:.0f} s in all")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a store of twins of the train split (default: record one)")
    parser.add_argument("--validation", type=Path, help="one of the validation split (default: record one)")
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="the weights (default: %(default)s)")
    parser.add_argument("--size", type=int, default=64, help="side of a recorded frame in pixels")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="passes over the twins (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of recordings and training")
    parser.add_argument("--threads", type=int, help="of torch (default: as torch finds them)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    settings = parse()
    raise SystemExit(report.run(main, settings))
