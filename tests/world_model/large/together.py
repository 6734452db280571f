"""Generates with two worlds in this process, which `torchrun` may have started as one of several.

The arguments are a folder with the worlds and one for what comes of them; each process writes its results under its
number: the latents of streams, how many bytes of weights and memory it had, an environment's frames, and the videos of
`wp2 generate`. Processes other than the first are told other controls and seeds, which nobody must follow.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import gymnasium
import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from world_model.controls import StructuredCaption
from world_model.large import parallel, world
from world_model.large.stream import LargeStream
from world_model.large.world import LoadedWorld, open_large_world
from wp2env.cli import generate, main

ROOT = Path(__file__).parents[3]
CHUNKS = 3
CASES = (  # folder, precision, one expert at a time on the device
    ("fast", "float32", False),
    ("ar", "float32", False),
    ("fast", "int8", True),
)


def encode(text: str) -> Tensor:
    return torch.full((2, 8), float(len(text) % 7))


def rolled(loaded: LoadedWorld, astray: int) -> tuple[LargeStream, Tensor]:
    """A stream of one slot, and its latents chunk by chunk."""
    stream = loaded.stream(1, sampling_steps=None if loaded.large.few_step else 2)
    pictures = torch.Generator().manual_seed(9 + astray)
    start = torch.randint(256, (1, *stream.frame_shape), generator=pictures, dtype=torch.uint8)
    stream.reset([0], [start], [StructuredCaption("a hall" + astray * " and a yard")], [1 + astray])
    moves, chunks = torch.Generator().manual_seed(4 + astray), []
    for _ in range(CHUNKS):
        stream.step(torch.randn(1, stream.latents_per_chunk, 6, generator=moves))
        stream.set_caption([0], event="rain" + astray * " and hail")
        chunks.append(stream.latents)
    return stream, torch.stack(chunks)


def sizes(loaded: LoadedWorld, stream: LargeStream) -> dict[str, int]:
    """Bytes that this process holds: of the blocks and of all weights, and of a slot's memory and its copy with room
    for another chunk; and the heads of a memory."""
    rows, columns = stream.config.token_grid
    room = stream.config.chunk_latents * rows * columns
    caches = stream.snapshot().slots[0].past.caches.values()
    pairs = [pair for cache in caches for pair in (*cache.pairs, *cache.context(room))]
    (heads,) = {pair.key.shape[1] for pair in pairs}
    return {
        "blocks": weights(*(expert.transformer.blocks for expert in loaded.experts.values())),
        "all": weights(*loaded.experts.values()),
        "heads": heads,
        "memory": sum(x.nbytes for pair in pairs for x in pair),
    }


def weights(*modules: torch.nn.Module) -> int:
    return sum(value.nbytes for module in modules for value in (*module.parameters(), *module.buffers()))


def played(loaded: LoadedWorld, astray: int) -> np.ndarray:
    """The last frames of an environment that was seeded differently in every process."""
    env = gymnasium.make("wp2env:WorldPlay2-v0", world=loaded, action_mode="discrete", obs_mode="clip")
    picture = np.random.default_rng(0).integers(0, 256, loaded.stream(1).frame_shape, dtype=np.uint8)
    env.reset(seed=7 + astray, options={"init_frames": picture, "caption": {"scene": "a hall"}})
    return env.step(1 + astray)[0]


def run(worlds: Path, out: Path) -> None:
    codec = runpy.run_path(str(ROOT / "tests" / "conftest.py"))["Blocks"]()
    world.open_codec = lambda place, device: codec
    world.open_text = lambda *given: encode
    with parallel.joined("cpu") as share:
        results, counted = {}, {}
        for name, precision, swap in CASES:
            case = f"{name} {precision} {'swapped' if swap else 'resident'}"
            loaded = open_large_world(worlds / name, "cpu", precision, swap, share)
            stream, results[case] = rolled(loaded, share.index)
            counted[case] = sizes(loaded, stream)
            if case == "fast float32 resident":
                results["environment"] = torch.from_numpy(played(loaded, share.index))
        save_file(results, out / f"{share.index}.safetensors")
        (out / f"{share.index}.json").write_text(json.dumps(counted))
    generate.open_codec = lambda settings, device: codec
    generate.open_text = lambda settings, device: encode
    generate.write_video = lambda file, frames, rate, zoom: np.save(file.with_suffix(f".{share.index}.npy"), frames)
    words = "generate", "--input-json", worlds / "in.json", "--world", worlds / "fast", "--out", out
    assert not main([*map(str, words), "--weights", "float32", "--device", "cpu"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(*map(Path, sys.argv[1:]))
