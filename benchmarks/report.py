"""What every benchmark shares: picture measures, bootstrap intervals, tables, plots and JSON."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from world_model.intervals import Interval, bootstrap, drawn_again, percentile_interval  # noqa: F401 - for all
from world_model.tables import markdown_table  # noqa: F401 - and print their results with it

PEAK = 255.0  # of uint8 pictures
HIGHEST_PSNR = 60.0  # dB; identical pictures have no finite PSNR and count as this
SSIM_WINDOW, SSIM_SIGMA = 11, 1.5  # pixels: the Gaussian window of Wang et al. 2004
SSIM_K1, SSIM_K2 = 0.01, 0.03


def psnr(first: Tensor, second: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB of uint8 pictures ``[..., H, W, 3]``, picture by picture, at most 60."""
    error = (first.float() - second.float()).square().mean(dim=(-3, -2, -1))
    return (10 * torch.log10(PEAK**2 / error.clamp_min(1e-12))).clamp_max(HIGHEST_PSNR)


def ssim(first: Tensor, second: Tensor) -> Tensor:
    """Structural similarity of uint8 pictures ``[..., H, W, 3]``, the mean over positions and channels, in [-1, 1].

    Wang et al., "Image Quality Assessment: From Error Visibility to Structural Similarity", 2004, Eq. 13: Gaussian
    window of 11 pixels with sigma 1.5, only where it lies inside the picture.
    """
    shape = first.shape[:-3]
    one, two = (pictures.float().movedim(-1, -3).reshape(-1, 1, *pictures.shape[-3:-1]) for pictures in (first, second))
    offsets = torch.arange(SSIM_WINDOW, dtype=torch.float32, device=one.device) - SSIM_WINDOW // 2
    weights = torch.exp(-offsets.square() / (2 * SSIM_SIGMA**2))
    weights = weights / weights.sum()

    def smooth(x: Tensor) -> Tensor:
        return functional.conv2d(functional.conv2d(x, weights[None, None, :, None]), weights[None, None, None])

    mean_one, mean_two = smooth(one), smooth(two)
    variance_one, variance_two = smooth(one * one) - mean_one**2, smooth(two * two) - mean_two**2
    covariance = smooth(one * two) - mean_one * mean_two
    c1, c2 = (SSIM_K1 * PEAK) ** 2, (SSIM_K2 * PEAK) ** 2
    similarity = (2 * mean_one * mean_two + c1) * (2 * covariance + c2)
    similarity = similarity / ((mean_one**2 + mean_two**2 + c1) * (variance_one + variance_two + c2))
    return similarity.mean(dim=(1, 2, 3)).reshape(*shape, 3).mean(-1)


def crossed_bootstrap(values: np.ndarray, seed: int = 0) -> Interval:
    """The mean of ``values [seeds, levels]`` with its percentile bootstrap interval over both: seeds are drawn again,
    and levels, the same ones for all seeds. A single seed leaves the interval to the levels alone.

    Raises:
        ValueError: for no values.
    """
    values = np.asarray(values, dtype=np.float64)
    if not values.size:
        raise ValueError(f"there are no values in an array of the shape {values.shape}; give at least one")
    rng = np.random.default_rng(seed)
    rows, columns = (drawn_again(count, rng) / count for count in values.shape)
    return percentile_interval(values.mean(), ((rows @ values) * columns).sum(1), values.size)


def machine() -> dict[str, object]:
    """What the numbers were measured on: processor, cores, threads and versions."""
    return {
        "processor": _processor(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("torch", "numpy", "gymnasium", "worldplay2-gym")},
    }


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_positive(settings: argparse.Namespace, *names: str) -> None:
    """Refuse numbers below 1.

    Raises:
        ValueError: naming the option.
    """
    for name in names:
        value = getattr(settings, name)
        least = min(value) if isinstance(value, list) else value
        if least < 1:
            raise ValueError(f"--{name.replace('_', '-')} is {least}; give at least 1")


def require_engine() -> None:
    """Make sure that the true game can be recorded.

    Raises:
        ValueError: when ViZDoom is not installed.
    """
    if importlib.util.find_spec("vizdoom") is None:
        raise ValueError(
            "recording the true game needs ViZDoom, which is not installed; "
            'install it with pip install "worldplay2-gym[doom]", or give a recorded store with --data'
        )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def write_json(path: Path, settings: argparse.Namespace, results: dict[str, object]) -> None:
    """Write results with the command that made them, its settings and the machine."""
    content = {
        "command": " ".join(["python", "-m", f"benchmarks.{Path(sys.argv[0]).stem}", *sys.argv[1:]]),
        "settings": {name: value for name, value in vars(settings).items() if name not in ("json", "plot")},
        "machine": machine(),
        "results": results,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, default=_plain) + "\n")
    print(f"wrote {path}")


def _plain(value: object) -> object:
    return asdict(value) if is_dataclass(value) else str(value)


@dataclass(frozen=True)
class Curve:
    """One line of a plot: intervals over positions."""

    name: str
    positions: Sequence[float]
    intervals: Sequence[Interval]


def curves(intervals: dict[tuple[str, float], Interval]) -> list[Curve]:
    """A curve for each name of intervals that are listed by name and position."""
    of: dict[str, dict[float, Interval]] = {}
    for (name, position), interval in intervals.items():
        of.setdefault(name, {})[position] = interval
    return [Curve(name, list(values), list(values.values())) for name, values in of.items()]


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure of `pyplot` into an image file, close it and say where it is."""
    from matplotlib import pyplot

    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    print(f"wrote {path}")


def plot(path: Path, panels: dict[str, Sequence[Curve]], across: str, logarithmic: bool = True) -> None:
    """Draw one panel per entry (its key labels the vertical axis), with 95 % bands, into an image file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(panels), figsize=(5.5 * len(panels), 4), squeeze=False)
    for axis, (label, curves) in zip(axes[0], panels.items(), strict=True):
        for curve in curves:
            lows, highs = ([getattr(i, end) for i in curve.intervals] for end in ("low", "high"))
            (line,) = axis.plot(curve.positions, [i.mean for i in curve.intervals], marker="o", label=curve.name)
            axis.fill_between(curve.positions, lows, highs, color=line.get_color(), alpha=0.15, linewidth=0)
        if logarithmic:
            positions = sorted({position for curve in curves for position in curve.positions})
            positions = positions if len(positions) < 9 else [position for position in positions if _is_power(position)]
            axis.set_xscale("log", base=2)
            axis.set_xticks(positions, [f"{position:g}" for position in positions])
        axis.set(xlabel=across, ylabel=label)
        axis.grid(alpha=0.3)
    axes[0][0].legend()
    save_figure(figure, path)


def _is_power(position: float) -> bool:
    return float(np.log2(position)).is_integer()


def command_line(description: str) -> argparse.ArgumentParser:
    """A parser with what all benchmarks of one world take."""
    parser = worldless_command_line(description)
    parser.add_argument("--world", default="doom", help="a bundled world or a folder with one (default: %(default)s)")
    return parser


def worldless_command_line(description: str) -> argparse.ArgumentParser:
    """A parser with what all benchmarks take."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller run, under three minutes on two cores")
    parser.add_argument("--seed", type=int, default=0, help="of recordings, rollouts and intervals")
    parser.add_argument("--threads", type=int, help="of torch (default: as torch finds them)")
    parser.add_argument("--json", type=Path, help="write settings, machine and results to this file")
    parser.add_argument("--plot", type=Path, help="draw the results into this image file")
    return parser


def add_rollout_options(parser: argparse.ArgumentParser, starts: int, horizon: int) -> None:
    """What benchmarks take that generate videos from true starts in one way; with defaults for two of the options."""
    add_start_options(parser, starts, horizon)
    parser.add_argument("--steps", type=int, help="network evaluations per chunk (default: the world's)")


def add_start_options(parser: argparse.ArgumentParser, starts: int, horizon: int) -> None:
    """The same without how a chunk is made."""
    parser.add_argument("--starts", type=int, default=starts, help="starts in held-out levels (default: %(default)s)")
    parser.add_argument("--horizon", type=int, default=horizon, help="frames to generate (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="rollouts side by side (default: %(default)s)")
    parser.add_argument("--data", type=Path, help="a clip store of held-out levels (default: record one)")


def run(main: Callable[[argparse.Namespace], None], arguments: argparse.Namespace) -> int:
    """Run a benchmark; what a user can mend ends in one sentence and exit code 2."""
    if arguments.threads is not None:
        if arguments.threads < 1:
            print(f"error: --threads is {arguments.threads}; give at least 1", file=sys.stderr)
            return 2
        torch.set_num_threads(arguments.threads)
    try:
        main(arguments)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
