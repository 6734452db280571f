"""The engine's own art: low-frequency, saturated textures, skies and sprites.

A small world model learns large soft shapes long before it learns mortar lines, so nothing here is finer
than a few pixels at 64x64. Every colour is a ramp of the Doom palette (the engine reduces all art to its
256 colours and shades along those ramps; any other colour would turn grey or brown in half light).
"""

from __future__ import annotations

import functools

import numpy as np

from world_model.data.doom.wad import Lump, png, sprite_png

RAMPS = {  # bright to dark, RGB
    "red": ["ff0000", "ef0000", "e30000", "d70000", "cb0000", "bf0000", "b30000", "a70000", "9b0000", "8b0000",
            "7f0000", "730000"],
    "green": ["6fef67", "67df5f", "5fcf57", "5bbf4f", "53af47", "4b9f3f", "439337", "3f832f", "37732b", "2f6323",
              "27531b"],
    "blue": ["5353ff", "3737ff", "1b1bff", "0000ff", "0000e3", "0000cb", "0000b3", "00009b", "000083"],
    "purple": ["ff7bff", "ff00ff", "cf00cf", "cf00cf", "9f009b", "6f006b"],
    "orange": ["ffa35b", "ff8f3b", "ff7f1b", "f37317", "eb6f0f", "df670f", "d75f0b", "cb5707", "c34f00", "b74700",
               "af4300"],
    "yellow": ["ffff47", "ffff23", "ffff00", "ffe74b", "ebdb57", "d7bb43", "c39b2f"],
    "white": ["ffffff", "efefef", "e7e7e7", "dfdfdf", "dbdbdb", "d3d3d3", "cbcbcb", "c7c7c7", "bfbfbf", "b7b7b7"],
    "grey": ["979797", "8b8b8b", "838383", "777777", "6f6f6f", "636363", "5b5b5b", "4f4f4f", "474747"],
    "brown": ["b37347", "a36b3f", "9b633b", "875733", "7f532f", "774f2b", "6b4727", "5f4323"],
}  # fmt: skip
COLOURS = ("red", "green", "blue", "purple", "orange", "yellow", "white", "grey")
PATTERNS = {  # name -> word of the caption
    "plain": "plain",
    "wainscot": "wainscoted",
    "stripe": "striped",
    "panel": "panelled",
    "band": "banded",
    "fade": "shaded",
}
FLOOR_PATTERNS = {"plain": "plain", "check": "checked"}
FLOOR_COLOURS = ("red", "green", "blue", "yellow", "white", "grey", "brown")
SHAPES = ("ball", "box", "cone", "pillar")
SKIES = {"day": "SKYDAY", "dusk": "SKYDUSK", "night": "SKYNIGHT", "overcast": "SKYGREY"}
TEXTURE = 128  # pixels = map units


def _ramp(colour: str, brightness: np.ndarray) -> np.ndarray:
    """Brightness in [0, 1] -> uint8 RGB along the colour's palette ramp."""
    ramp = np.array([[int(code[i : i + 2], 16) for i in (0, 2, 4)] for code in RAMPS[colour]], dtype=np.uint8)
    steps = np.rint((1 - np.clip(brightness, 0, 1)) * (len(ramp) - 1)).astype(int)
    return ramp[steps]


def _soft_step(x: np.ndarray, edge: float, width: float) -> np.ndarray:
    """0 below the edge, 1 above it, linear over ``width``."""
    return np.clip((x - edge) / width + 0.5, 0, 1)


def wall(pattern: str, colour: str) -> np.ndarray:
    """A wall texture, uint8 ``[128, 128, 3]``; row 0 is the top."""
    y, x = np.mgrid[0:TEXTURE, 0:TEXTURE] / TEXTURE
    gradient = 0.72 - 0.22 * y
    if pattern == "fade":
        return _ramp(colour, 1.0 - y)
    if pattern == "stripe":
        return _ramp(colour, gradient + 0.35 * np.clip(1.6 * np.sin(2 * np.pi * x), -1, 1))
    if pattern == "panel":
        border = np.minimum(np.minimum(x, 1 - x), np.minimum(y, 1 - y))
        return _ramp(colour, 0.15 + (gradient - 0.02) * _soft_step(border, 0.14, 0.06))
    image = _ramp(colour, gradient)
    trim = "grey" if colour in ("white", "yellow") else "white"
    if pattern == "wainscot":
        return np.where((y > 0.58)[..., None], _ramp(trim, gradient + 0.1), image)
    if pattern == "band":
        return np.where((np.abs(y - 0.42) < 0.13)[..., None], _ramp(trim, gradient + 0.1), image)
    return image


def floor(pattern: str, colour: str) -> np.ndarray:
    """A floor or ceiling texture, uint8 ``[128, 128, 3]``; a check is 64 units wide."""
    y, x = np.mgrid[0:TEXTURE, 0:TEXTURE] / TEXTURE
    wave = np.clip(3 * np.sin(2 * np.pi * x) * np.sin(2 * np.pi * y), -1, 1)
    return _ramp(colour, 0.55 + (0.3 * wave if pattern == "check" else np.zeros_like(x)))


def door() -> np.ndarray:
    """The door texture: two grey leaves with bright frames, uint8 ``[128, 128, 3]``."""
    y, x = np.mgrid[0:TEXTURE, 0:TEXTURE] / TEXTURE
    leaf = _soft_step(np.minimum(np.abs(x - 0.5), np.minimum(x, 1 - x)), 0.1, 0.06)
    return np.where((leaf > 0.5)[..., None], _ramp("orange", 0.5 - 0.3 * y), _ramp("grey", 0.2 + 0 * y))


def shape(kind: str, colour: str, size: int = 64) -> np.ndarray:
    """An object's sprite, uint8 RGBA ``[size, size, 4]``, softly lit from the upper left."""
    y, x = np.mgrid[0:size, 0:size] / (size - 1)
    u = x - 0.5
    if kind == "ball":
        inside, light = np.hypot(u, y - 0.5) < 0.5, 1.15 - 1.3 * np.hypot(u + 0.15, y - 0.35)
    elif kind == "box":
        inside, light = np.ones_like(x, bool), np.where(y < 0.22, 1.0, np.where(u < 0.2, 0.6, 0.2))
    elif kind == "cone":
        inside, light = np.abs(u) <= 0.5 * y, 0.75 - 1.1 * u / np.maximum(y, 0.1)
    else:
        inside, light = np.abs(u) < 0.24, 0.7 - 2.2 * u
    return np.dstack([_ramp(colour, light), np.where(inside, 255, 0).astype(np.uint8)])


def health_pack(size: int = 48) -> np.ndarray:
    """A white case with a red cross, uint8 RGBA ``[size, size, 4]``."""
    y, x = np.mgrid[0:size, 0:size] / (size - 1)
    cross = (np.abs(x - 0.5) < 0.13) & (np.abs(y - 0.55) < 0.33) | (np.abs(y - 0.55) < 0.13) & (np.abs(x - 0.5) < 0.33)
    colour = np.where(cross[..., None], _ramp("red", 1 - 0.2 * y), _ramp("white", 0.9 - 0.5 * y))
    return np.dstack([colour, np.where(y > 0.1, 255, 0).astype(np.uint8)])


def exit_marker(width: int = 64, height: int = 96) -> np.ndarray:
    """A green arch with a bright inside, uint8 RGBA ``[height, width, 4]``."""
    y, x = np.mgrid[0:height, 0:width] / np.array([height - 1, width - 1])[:, None, None]
    radius = np.hypot(x - 0.5, np.minimum(y - 0.34, 0) * height / width)
    colour = np.where((radius < 0.3)[..., None], _ramp("yellow", 1.0 - 0.2 * y), _ramp("green", 0.7 - 0.5 * y))
    return np.dstack([colour, np.where(radius < 0.5, 255, 0).astype(np.uint8)])


def flake(height: int, width: int, colour: tuple[int, int, int]) -> np.ndarray:
    """A one-colour speck of rain or snow, uint8 RGBA ``[height, width, 4]``."""
    return np.broadcast_to(np.array([*colour, 255], np.uint8), (height, width, 4)).copy()


def sky(top: tuple, bottom: tuple, disc: tuple | None = None, clouds: tuple | None = None) -> np.ndarray:
    """A sky, uint8 ``[128, 256, 3]``: a vertical gradient with one disc (sun or moon) or a few soft clouds."""
    height, width = 128, 256
    y, x = np.mgrid[0:height, 0:width]
    image = np.array(top) * (1 - y / height)[..., None] + np.array(bottom) * (y / height)[..., None]
    for centre_x, centre_y, spread in ((40, 60, 26), (130, 45, 34), (205, 66, 22)) if clouds else ():
        cover = np.exp(-(((x - centre_x) / spread) ** 2) - ((y - centre_y) / (0.38 * spread)) ** 2)[..., None]
        image = image * (1 - cover) + np.array(clouds) * cover
    if disc:
        image[np.hypot(x - 128, y - 62) < 15] = disc
    return np.clip(image, 0, 255).astype(np.uint8)


def wall_name(pattern: str, colour: str) -> str:
    """The lump name of a wall texture, at most 8 characters."""
    return f"W{pattern[:3]}{colour[:4]}".upper()


def floor_name(pattern: str, colour: str) -> str:
    """The lump name of a floor or ceiling texture, at most 8 characters."""
    return f"F{pattern[:3]}{colour[:4]}".upper()


def shape_sprite(kind: str, colour: str) -> str:
    """The four-letter sprite name of an own object."""
    return f"O{chr(65 + SHAPES.index(kind))}{chr(65 + COLOURS.index(colour))}X"


@functools.cache
def lumps() -> tuple[Lump, ...]:
    """All own art as WAD lumps with their section markers."""
    textures = [(wall_name(p, c), png(wall(p, c))) for p in PATTERNS for c in COLOURS]
    textures += [(floor_name(p, c), png(floor(p, c))) for p in FLOOR_PATTERNS for c in FLOOR_COLOURS]
    textures += [
        ("DOORWALL", png(door())),
        (SKIES["day"], png(sky((27, 27, 255), (171, 171, 255), clouds=(255, 255, 255)))),
        (SKIES["dusk"], png(sky((159, 0, 155), (255, 127, 27), disc=(255, 255, 35)))),
        (SKIES["night"], png(sky((0, 0, 35), (0, 0, 131), disc=(255, 255, 255)))),
        (SKIES["overcast"], png(sky((119, 119, 119), (199, 199, 199)))),
    ]
    sprites = [(f"{shape_sprite(k, c)}A0", sprite_png(shape(k, c))) for k in SHAPES for c in COLOURS]
    sprites += [
        ("HPAKA0", sprite_png(health_pack())),
        ("EXITA0", sprite_png(exit_marker())),
        ("DROPA0", sprite_png(flake(20, 3, (143, 143, 255)))),
        ("FLAKA0", sprite_png(flake(6, 6, (255, 255, 255)))),
    ]
    return (("TX_START", b""), *textures, ("TX_END", b""), ("S_START", b""), *sprites, ("S_END", b""))
