"""``wp2 generate``: videos of a large world from the published control JSON, in one process or several (`torchrun`)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from world_model.checkpoint import check_device
from world_model.control_scripts import DEFAULT_DEGREES
from world_model.large import companions, parallel
from world_model.large.conditioning import StreamingCodec
from world_model.large.folder import read_large_world
from world_model.large.generate import STEPS, chunk_latents, generate
from world_model.large.requests import Request, read_requests
from world_model.large.tiled import TiledCodec
from world_model.large.world import PRECISIONS, open_experts
from wp2env.cli.arguments import MAX_SEED, degrees, whole
from wp2env.cli.video import check_video, write_video

FAST_PITCH = 1.0  # degrees per latent, the published default of the few-step model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``wp2 generate``."""
    parser.add_argument("--input-json", required=True, type=Path, help="the videos to generate, as published")
    parser.add_argument("--world", required=True, type=Path, help="folder of a large world, from `wp2 convert`")
    parser.add_argument(
        "--codec",
        type=Path,
        help="autoencoder: a .safetensors file of Wan's or the light one, or a diffusers folder (default: the world's)",
    )
    parser.add_argument(
        "--tile", type=whole(1, 2**14), help="pixels a side that the autoencoder sees at once (default: all)"
    )
    parser.add_argument(
        "--text", type=Path, help="umT5 encoder: a .safetensors file or a transformers folder (default: the world's)"
    )
    parser.add_argument("--tokenizer", type=Path, help="folder of umT5's tokenizer (default: that of --text)")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder for the videos (default: here)")
    parser.add_argument("--check", action="store_true", help="read the JSON, say what it asks for, and end")
    parser.add_argument("--yaw", type=degrees, default=DEFAULT_DEGREES, help="per latent of left, right (%(default)s)")
    parser.add_argument(
        "--pitch", type=degrees, help=f"per latent of up, down (default: {DEFAULT_DEGREES}, fast worlds {FAST_PITCH})"
    )
    parser.add_argument(
        "--steps", type=whole(1, 1000), default=STEPS, help="of ar and bi worlds (default: %(default)s)"
    )
    parser.add_argument("--seed", type=whole(0, MAX_SEED), default=0, help="of the noise")
    parser.add_argument(
        "--weights", choices=PRECISIONS, default=PRECISIONS[0], help="how the experts are kept (default: %(default)s)"
    )
    parser.add_argument(
        "--swap-experts", action="store_true", help="one expert at a time on the device, for cards that hold only one"
    )
    parser.add_argument("--device", default="cuda", help="cpu or cuda (default: %(default)s)")


def main(settings: argparse.Namespace) -> None:
    """Generate every video that the JSON asks for."""
    world = read_large_world(settings.world)
    pitch = settings.pitch
    if pitch is None:
        pitch = FAST_PITCH if world.few_step else DEFAULT_DEGREES
    requests = read_requests(settings.input_json, chunk_latents(world.config, world.variant), settings.yaw, pitch)
    if settings.check:
        for request in requests:
            changes = sum(a != b for a, b in zip(request.captions, request.captions[1:], strict=False))
            print(f"{request.name}: {len(request.rows)} latents in {len(request.captions)} chunks, ", end="")
            print(f"{changes} change{'s' * (changes != 1)} of caption, from {request.image}")
        return
    for request in requests:
        check_video(_video(settings.out, request))
    images = [_picture(request.image) for request in requests]
    with parallel.joined(settings.device) as share:
        parallel.check_split(world.config, share.count)
        device, first = check_device(settings.device), share.index == 0
        codec, encode = open_codec(settings, device), open_text(settings, device)
        if settings.tile:
            codec = TiledCodec(codec, settings.tile, world.config.world.codec.spatial_factor)
        experts = open_experts(settings.world, device, settings.weights, settings.swap_experts, share)
        for request, image in zip(requests, images, strict=True):
            rows, frames = torch.from_numpy(request.rows), []
            given = codec, encode, image, rows, request.captions, settings.seed, settings.steps
            chunks = generate(experts, world.variant, *given)
            for made in tqdm(chunks, request.name, len(request.captions), unit="chunk", disable=not first):
                frames.extend(made.movedim(1, -1).cpu().numpy())
            if first:  # all processes have the same frames
                write_video(_video(settings.out, request), frames, world.config.world.video.frame_rate, zoom=1)
                print(f"wrote {_video(settings.out, request)}, {len(frames)} frames")


def open_codec(settings: argparse.Namespace, device: torch.device) -> StreamingCodec:
    """The Wan autoencoder of the command line, else the world's own."""
    with _or_given_by("--codec"):
        return companions.open_codec(settings.codec or settings.world / "vae", device)


def open_text(settings: argparse.Namespace, device: torch.device) -> Callable[[str], Tensor]:
    """The caption encoder of the command line, else the world's own, as a function of one text."""
    place, tokenizer = settings.text or settings.world / "text_encoder", settings.tokenizer
    if tokenizer is None and settings.text is not None:
        if not place.is_dir():
            raise ValueError("--text is a file, so say with --tokenizer in which folder its tokenizer is")
        tokenizer = place
    with _or_given_by("--text"):
        return companions.open_text(place, tokenizer or settings.world / "tokenizer", device)


@contextmanager
def _or_given_by(option: str) -> Iterator[None]:
    """Say in the message about an absent part which option names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}, or say with {option} where it is") from None


def _video(folder: Path, request: Request) -> Path:
    return folder / f"{request.name}.mp4"


def _picture(file: Path) -> Tensor:
    """A picture file as uint8 ``[3, h, w]``."""
    pixels = cv2.imread(str(file), cv2.IMREAD_COLOR)
    if pixels is None:
        raise ValueError(f"{file} is no picture that can be read; give a PNG or JPEG file")
    return torch.from_numpy(np.ascontiguousarray(pixels[..., ::-1])).movedim(-1, 0)
