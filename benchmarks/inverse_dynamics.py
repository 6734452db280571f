"""The yardstick for controls: what moved the world from one frame to the next, estimated from the two pictures alone.

An inverse-dynamics model looks at frames ``t-1`` and ``t`` and estimates the action row ``a_t`` between them. It is
trained on true frames only, so it can be held against any world: if a generated world turns by what was commanded, the
estimate says so. It sees no third frame on purpose: what an estimate says about a transition comes from that transition
and not from the habit of the one before. Its trunk looks at single frames and gives the features that other
benchmarks compare pictures with.

Everybody measures with the same weights, which are part of this package. They were made from ``wp2 record doom``
(seed 0, 3200 clips of 64 frames of training levels) by

  python -m benchmarks.inverse_dynamics --data data/train --minutes 5.5 --threads 2 --out first.safetensors
  python -m benchmarks.inverse_dynamics --data data/train --minutes 7.5 --start first.safetensors --out w.safetensors

They see turns, walking, perspective, most sidesteps and jumps, but hardly the small pitches, which are rare in
recordings. So every benchmark puts what they say of true frames beside what they say of generated ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from benchmarks import report
from world_model.controls import JUMP, LATERAL, LONGITUDINAL, PERSPECTIVE, PITCH, YAW
from world_model.data.store import ClipStore

WEIGHTS = Path(__file__).parent / "weights" / "inverse_dynamics.safetensors"
LICENCE = "Apache-2.0; trained on pictures of Freedoom (BSD-3-Clause, see NOTICE)"
SIZE = 64  # pixels a side; other pictures are resized to it
FEATURES, READ = 64, 64
REACH_X, REACH_Y = 3, 2  # trunk cells of 4 pixels that a picture part can move by: 16 degrees are 10 pixels and more
SHIFTS = [(y, x) for y in range(-REACH_Y, REACH_Y + 1) for x in range(-REACH_X, REACH_X + 1)]
SHARPNESS = 10.0  # of the choice among shifts, per unit of cosine similarity
MATCHED = 8  # channels that are compared between the two frames
ANGLES = {PITCH: 4.0, YAW: 16.0}  # column -> degrees that the network's output 1 stands for
MOVES = {LONGITUDINAL: (-1, 0, 1), LATERAL: (-1, 0, 1), JUMP: (0, 1)}  # column -> values of the classes, ascending
CLASSES = MOVES | {PERSPECTIVE: (0, 1)}
AT_ONCE = 512  # pictures that go through the network together

WINDOW, BATCH = 9, 12  # frames of a training window, windows of a batch: 96 transitions
LEARNING_RATE, WARMUP = 3e-3, 0.02  # the second as share of the run
WEIGHT_DECAY = 1e-2
ANGLE_WEIGHT = 12.0  # of the angles' loss against the classes' cross-entropies
ANGLE_KNEE = 0.25  # in units of `ANGLES`; most rows do not turn, and a plain absolute error would learn only that
RARE = {LATERAL: (4.0, 1.0, 4.0), LONGITUDINAL: (4.0, 2.0, 1.0), JUMP: (1.0, 4.0), PERSPECTIVE: (1.0, 1.0)}
# weights of the classes, so that the rare ones are learned, too: walkers mostly walk ahead
HELD_OUT = 64  # last clips of the store, for the figures that training prints
FORBIDDEN_SPLIT = "test"  # the levels that worlds are measured in


class InverseDynamics(nn.Module):
    """Estimates action rows from pairs of consecutive frames (about 300,000 parameters)."""

    def __init__(self, seed: int = 0) -> None:
        """Random weights that depend on ``seed`` alone; `load` gives the trained ones."""
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.trunk = nn.Sequential(_layer(3, 32, 5, 2), _layer(32, FEATURES, 3, 2))
            self.match = nn.Sequential(nn.Conv2d(FEATURES, MATCHED, 1, bias=False), nn.BatchNorm2d(MATCHED))
            inputs = len(SHIFTS) + 2 + 2 * FEATURES
            self.motion = nn.Sequential(_layer(inputs, 96, 1, 1), _layer(96, 96, 3, 2), _layer(96, 96, 3, 2))
            cells = (SIZE // 16) ** 2
            self.read = nn.Sequential(nn.Flatten(), nn.Linear(96 * cells, READ), nn.ReLU())
            self.angles = nn.Linear(READ, len(ANGLES))
            self.moves = nn.ModuleList(nn.Linear(READ, len(values)) for values in MOVES.values())
            self.view = nn.Linear(READ + FEATURES, 2)
        self.register_buffer("feature_mean", torch.zeros(FEATURES))
        self.register_buffer("feature_scale", torch.ones(FEATURES))

    def maps(self, frames: Tensor) -> Tensor:
        """Feature maps ``[N, 64, 16, 16]`` of single frames, uint8 or 0..255, ``[N, H, W, 3]``."""
        pictures = frames.movedim(-1, -3).float()
        if pictures.shape[-2:] != (SIZE, SIZE):
            pictures = functional.interpolate(pictures, (SIZE, SIZE), mode="area")
        return self.trunk((pictures / 127.5 - 1).contiguous(memory_format=torch.channels_last))

    def forward(self, frames: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
        """Angles ``[B, T-1, 2]`` (in units of `ANGLES`) and, by column, class logits ``[B, T-1, classes]`` of the
        transitions between frames ``[B, T, H, W, 3]``; the perspective is that of the later frame."""
        maps = self.maps(frames.flatten(0, 1)).unflatten(0, frames.shape[:2])
        before, after = maps[:, :-1].flatten(0, 1), maps[:, 1:].flatten(0, 1)
        motion = self.read(self.motion(torch.cat([self._flow(before, after), before, after], dim=1)))
        logits = {column: head(motion) for column, head in zip(MOVES, self.moves, strict=True)}
        logits[PERSPECTIVE] = self.view(torch.cat([motion, after.mean(dim=(2, 3))], dim=1))
        transitions = (frames.shape[0], frames.shape[1] - 1)
        logits = {column: scores.unflatten(0, transitions) for column, scores in logits.items()}
        return self.angles(motion).unflatten(0, transitions), logits

    def _flow(self, before: Tensor, after: Tensor) -> Tensor:
        """Where each cell went, ``[N, shifts + 2, 16, 16]``: a probability for each shift, and the expected one."""
        one, two = (functional.normalize(self.match(maps), dim=1) for maps in (before, after))
        height, width = one.shape[-2:]
        two = functional.pad(two, (REACH_X, REACH_X, REACH_Y, REACH_Y))
        shifted = (two[..., REACH_Y + y :, REACH_X + x :][..., :height, :width] for y, x in SHIFTS)
        likeness = torch.stack([(one * other).sum(1) for other in shifted], dim=1)
        shares = (SHARPNESS * likeness).softmax(1)
        expected = torch.einsum("nsyx,sk->nkyx", shares, torch.tensor(SHIFTS, dtype=shares.dtype))
        return torch.cat([shares, expected], dim=1)

    @torch.inference_mode()
    def estimate(self, frames: Tensor) -> Tensor:
        """The action rows, float32 ``[B, T-1, 6]`` in the order of `ACTION_COLUMNS`, that moved the world from frame to
        frame of uint8 videos ``[B, T, H, W, 3]``: angles in degrees, the likeliest class elsewhere.

        Raises:
            ValueError: when there is no second frame.
        """
        if frames.shape[1] < 2:
            raise ValueError(f"the video has {frames.shape[1]} frames and a transition takes 2; give more frames")
        return torch.cat([self._rows(videos) for videos in frames.split(max(1, AT_ONCE // frames.shape[1]))])

    def _rows(self, frames: Tensor) -> Tensor:
        angles, logits = self(frames)
        rows = torch.empty(*angles.shape[:2], len(ANGLES) + len(logits))
        for k, (column, unit) in enumerate(ANGLES.items()):
            rows[..., column] = angles[..., k] * unit
        for column, values in CLASSES.items():
            rows[..., column] = torch.tensor(values, dtype=torch.float32)[logits[column].argmax(-1)]
        return rows

    @torch.inference_mode()
    def features(self, frames: Tensor) -> Tensor:
        """Features ``[N, 64]`` of single uint8 frames ``[N, H, W, 3]``: averages over the picture, for perceptual and
        Fréchet distances. Each has mean 0 and variance 1 over the true frames of the training levels."""
        pooled = torch.cat([self.maps(part).mean(dim=(2, 3)) for part in frames.split(AT_ONCE)])
        return (pooled - self.feature_mean) / self.feature_scale


def _layer(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, (kernel - stride + 1) // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


def load(path: Path = WEIGHTS) -> InverseDynamics:
    """The trained model, ready to estimate.

    Raises:
        ValueError: for a file that does not hold its weights.
    """
    model = InverseDynamics()
    try:
        with safe_open(path, framework="pt") as file:
            model.load_state_dict({name: file.get_tensor(name) for name in file.keys()})
    except (OSError, RuntimeError, SafetensorError) as error:
        raise ValueError(f"{path} does not hold the inverse-dynamics weights ({error}); restore or train it") from error
    return model.eval().requires_grad_(False)


def save(model: InverseDynamics, path: Path) -> None:
    """Write the weights with their licence; matrices and kernels in half precision, which is enough for them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = {name: value.half() if value.ndim > 1 else value for name, value in model.state_dict().items()}
    save_file(weights, path, {"format": "pt", "licence": LICENCE})


def rotation_error(estimated: np.ndarray, commanded: np.ndarray) -> np.ndarray:
    """Degrees by which rows ``[..., 6]`` differ in yaw and pitch together, ``[...]``."""
    return np.abs(estimated - commanded)[..., list(ANGLES)].sum(-1)


def same_translation(estimated: np.ndarray, commanded: np.ndarray) -> np.ndarray:
    """Whether longitudinal and lateral movement of rows ``[..., 6]`` are both the same, bool ``[...]``."""
    return (estimated == commanded)[..., [LONGITUDINAL, LATERAL]].all(-1)


# Training


def batches(store: ClipStore, clips: Sequence[int], seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless random windows: frames uint8 ``[12, 9, H, W, 3]`` and rows ``[12, 9, 6]``."""
    rng = np.random.default_rng(seed)
    while True:
        chosen = rng.choice(clips, BATCH)
        windows = [store.window(int(k), int(rng.integers(store.length(k) - WINDOW + 1)), WINDOW) for k in chosen]
        frames, rows = ([getattr(window, name) for window in windows] for name in ("frames", "actions"))
        yield torch.from_numpy(np.stack(frames)), torch.from_numpy(np.stack(rows))


def vary(frames: Tensor, rows: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Mirror half of the windows and make each brighter or darker, and every second one softer, by its own measure.

    Generated pictures are softer than true ones; a yardstick that needs crisp pixels would measure that instead.
    """

    def draw(low: float, high: float) -> Tensor:
        return torch.empty(len(frames), 1, 1, 1, 1).uniform_(low, high, generator=generator)

    mirrored = draw(0, 1) < 0.5
    rows = rows.clone()
    rows[..., [YAW, LATERAL]] *= torch.where(mirrored[..., 0, 0], -1.0, 1.0)
    pictures = torch.where(mirrored, frames.flip(3), frames).float()
    halved = pictures[::2].flatten(0, 1).movedim(-1, 1)
    soft = functional.avg_pool2d(halved, 3, 1, 1, count_include_pad=False)
    soft = soft.movedim(1, -1).unflatten(0, (-1, frames.shape[1]))
    pictures[::2] = pictures[::2].lerp(soft, draw(0, 1)[::2])
    pictures = pictures * draw(0.8, 1.2) + draw(-15, 15)  # grey levels
    return pictures.clamp(0, 255), rows


def loss(model: InverseDynamics, frames: Tensor, rows: Tensor) -> Tensor:
    """Errors of the angles plus weighted cross-entropies of the classes; ``rows[:, t]`` leads to frame ``t``."""
    angles, logits = model(frames)
    wanted = rows[:, 1:]
    unit = torch.tensor(list(ANGLES.values()))
    total = ANGLE_WEIGHT * functional.smooth_l1_loss(angles.float(), wanted[..., list(ANGLES)] / unit, beta=ANGLE_KNEE)
    for column, scores in logits.items():
        classes = wanted[..., column].long() - CLASSES[column][0]
        weights = torch.tensor(RARE[column])
        total = total + functional.cross_entropy(scores.float().flatten(0, 1), classes.flatten(), weights)
    return total


def train(
    model: InverseDynamics, data: Iterable[tuple[Tensor, Tensor]], progress: Iterable[float], seed: int = 0
) -> InverseDynamics:
    """Train on batches of windows while ``progress``, the share of the run that is over, lasts."""
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=WEIGHT_DECAY)
    generator = torch.Generator().manual_seed(seed)
    model.train()
    for (frames, rows), share in zip(data, progress, strict=False):
        rate = LEARNING_RATE * min(1, share / WARMUP) * 0.5 * (1 + np.cos(np.pi * share))
        for group in optimizer.param_groups:
            group["lr"] = rate
        frames, rows = vary(frames, rows, generator)
        with torch.autocast("cpu", torch.bfloat16):
            value = loss(model, frames, rows)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return model.eval()


def for_minutes(minutes: float) -> Iterator[float]:
    """The share of a time span that is over, until it is."""
    began, bar = time.monotonic(), tqdm(unit="batch", desc="training")
    while (share := (time.monotonic() - began) / (60 * minutes)) < 1:
        yield share
        bar.update()
    bar.close()


def standardise(model: InverseDynamics, frames: Tensor) -> None:
    """Make the features' mean 0 and variance 1 over true frames ``[N, H, W, 3]``."""
    raw = model.features(frames) * model.feature_scale + model.feature_mean
    model.feature_mean.copy_(raw.mean(0))
    model.feature_scale.copy_(raw.std(0).clamp_min(1e-6))


def check(settings: argparse.Namespace, store: ClipStore) -> None:
    """Refuse what the yardstick must not be trained on.

    Raises:
        ValueError: naming what is wrong.
    """
    if settings.minutes <= 0:
        raise ValueError(f"--minutes is {settings.minutes}; give more than 0")
    if store.recipe.get("split") == FORBIDDEN_SPLIT:
        raise ValueError(f"{store.path} shows the levels that worlds are measured in; give a store of split train")
    usable = sum(store.length(index) >= WINDOW for index in range(len(store)))
    if usable < len(store) or usable < 2 * HELD_OUT:
        raise ValueError(
            f"{store.path} has {usable} of {len(store)} clips with {WINDOW} frames; all of them, and at least "
            f"{2 * HELD_OUT}, must have as many: record more or longer clips"
        )


def main(settings: argparse.Namespace) -> None:
    """Train, print how well it does on the last clips, and write the weights."""
    store = ClipStore(settings.data)
    check(settings, store)
    clips = range(len(store) - HELD_OUT)
    data = batches(store, clips, settings.seed)
    model = load(settings.start).requires_grad_(True) if settings.start else InverseDynamics(settings.seed)
    train(model, data, for_minutes(settings.minutes), settings.seed)
    standardise(model, torch.cat([next(data)[0].flatten(0, 1) for _ in range(HELD_OUT)]))

    held_out = [store[index] for index in range(len(store) - HELD_OUT, len(store))]
    estimated = [model.estimate(torch.tensor(clip.frames[None]))[0].numpy() for clip in held_out]
    commanded = [clip.actions[1:] for clip in held_out]
    figures = {
        "rotation error (degrees)": [rotation_error(*pair).mean() for pair in zip(estimated, commanded, strict=True)],
        "commanded rotation (degrees)": [rotation_error(rows, 0 * rows).mean() for rows in commanded],
        "translation accuracy": [same_translation(*pair).mean() for pair in zip(estimated, commanded, strict=True)],
    }
    rows = [[name, str(report.bootstrap(values, settings.seed))] for name, values in figures.items()]
    print(report.markdown_table([f"{HELD_OUT} clips that training has not seen", ""], rows))
    save(model, settings.out)
    print(f"wrote {settings.out}")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a clip store of training or validation levels")
    parser.add_argument("--minutes", type=float, default=15, help="to train for (default: %(default)s)")
    parser.add_argument("--start", type=Path, help="weights to go on from (default: random ones)")
    parser.add_argument("--out", type=Path, required=True, help="the weights' file")
    parser.add_argument("--seed", type=int, default=0, help="of weights, windows and intervals")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default: %(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    settings = parse()
    raise SystemExit(report.run(main, settings))
