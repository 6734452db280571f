"""Freedoom's own maps, walked by the depth policy: the hard, out-of-domain set."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from world_model.controls import FIRST_PERSON, NOTHING, PERSPECTIVE, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.doom import actors
from world_model.data.doom.engine import DoomEngine
from world_model.data.doom.policies import DepthWalker
from world_model.data.doom.recipe import Recipe
from world_model.data.doom.starts import choose_look
from world_model.data.doom.take import caption_changes
from world_model.data.doom.wad import write_wad

MAPS = 32
WARM_UP = 80  # frames at most that are walked before recording, so that clips of one map begin apart
DEPTH_UNIT = 6.0  # map units per step of the depth buffer
BAND = 1 / 12  # of the picture's height above and below its middle, where the floor is still far
SCENE = "a dark level of Freedoom with stone and metal walls"
LICENCE = "levels and art from Freedoom (BSD-3-Clause)"


class FreedoomStudio:
    """Records clips in maps MAP01 to MAP32 of Freedoom Phase 2. Captions there are general, not exact."""

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        self._folder = tempfile.TemporaryDirectory(prefix="doom-bodies-", ignore_cleanup_errors=True)
        wad = Path(self._folder.name) / "bodies.wad"
        write_wad(wad, [("DECORATE", actors.decorate().encode()), ("MAPINFO", actors.mapinfo({}).encode())])
        self.engine = DoomEngine(wad, "MAP01", recipe.size, depth=True)

    @property
    def pose(self) -> np.ndarray:
        """The player's pose now (what the policy reads)."""
        return self.engine.pose

    def distances(self) -> tuple[float, float, float]:
        """How far away the nearest things are to the left, ahead and to the right, in map units."""
        depth = self.engine.depth_map()
        middle, reach = depth.shape[0] // 2, round(BAND * depth.shape[0])
        band = depth[middle - reach : middle + reach].min(axis=0) * DEPTH_UNIT
        return tuple(float(part.mean()) for part in np.array_split(band, 3))

    def record(self, index: int) -> Clip:
        """Record the clip of that index; it is shorter if the walker leaves the map."""
        rng = self.recipe.generator(index, purpose=1)
        number, look = 1 + int(rng.integers(MAPS)), choose_look(rng)
        view = int(rng.random() < 0.5)
        self.engine.reset_at_start(f"MAP{number:02d}", int(rng.integers(2**31)), look, view)
        policy = DepthWalker(rng)
        for _ in range(int(rng.integers(WARM_UP))):
            self.engine.step(self._row(policy, view))
        idle = np.array([0, 0, 0, 0, view, 0], dtype=np.float32)
        frames, actions, poses = [self.engine.frame], [idle], [self.engine.pose]
        while len(frames) < self.recipe.frames:
            action = self.engine.step(self._row(policy, view))
            if self.engine.ended:
                break
            frames.append(self.engine.frame)
            actions.append(action)
            poses.append(self.engine.pose)
        caption = StructuredCaption(SCENE, NOTHING if view == FIRST_PERSON else look.caption())
        return Clip(
            frames=np.stack(frames),
            actions=np.stack(actions),
            captions=caption_changes([caption]),
            pose=np.stack(poses),
            source=f"ViZDoom, Freedoom Phase 2 MAP{number:02d}",
            licence=LICENCE,
            meta={"clip": index, "map": number, "policy": "DepthWalker", "seed": self.recipe.seed, "split": "freedoom"},
        )

    def _row(self, policy: DepthWalker, view: int) -> np.ndarray:
        row = policy(self)
        row[PERSPECTIVE] = view
        return row

    def close(self) -> None:
        """End the engine."""
        self.engine.close()
        self._folder.cleanup()
