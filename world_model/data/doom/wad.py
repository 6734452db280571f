"""WAD files and PNG lumps: the container in which a level, its art and its actors reach the engine."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import cv2
import numpy as np

Lump = tuple[str, bytes]


def write_wad(path: Path, lumps: list[Lump]) -> None:
    """Write a patch WAD (``PWAD``): header, lump bodies, directory of ``(offset, size, name[8])``."""
    bodies, directory, offset = [], [], 12
    for name, body in lumps:
        if len(name) > 8:
            raise ValueError(f"lump name {name!r} has {len(name)} characters, a WAD allows 8; shorten it")
        directory.append(struct.pack("<ii8s", offset, len(body), name.upper().encode()))
        bodies.append(body)
        offset += len(body)
    header = b"PWAD" + struct.pack("<ii", len(lumps), offset)
    Path(path).write_bytes(header + b"".join(bodies) + b"".join(directory))


def png(image: np.ndarray) -> bytes:
    """Encode uint8 RGB ``[H, W, 3]`` or RGBA ``[H, W, 4]`` as PNG."""
    to_bgr = cv2.COLOR_RGB2BGR if image.shape[-1] == 3 else cv2.COLOR_RGBA2BGRA
    return cv2.imencode(".png", cv2.cvtColor(np.ascontiguousarray(image), to_bgr))[1].tobytes()


def sprite_png(rgba: np.ndarray) -> bytes:
    """A PNG that stands on its bottom centre: ZDoom reads a sprite's anchor from a ``grAb`` chunk."""
    data, (height, width) = png(rgba), rgba.shape[:2]
    body = b"grAb" + struct.pack(">ii", width // 2, height)
    chunk = struct.pack(">I", 8) + body + struct.pack(">I", zlib.crc32(body))
    after_header = 33  # 8 signature bytes and the 25-byte IHDR chunk, which must stay first
    return data[:after_header] + chunk + data[after_header:]
