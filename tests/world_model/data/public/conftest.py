"""Walks whose action rows are known, as cameras and as videos."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from world_model.controls import LATERAL, LONGITUDINAL, PERSPECTIVE, PITCH, YAW


def rotation(axis: str, degrees: float) -> np.ndarray:
    vector = np.radians(degrees) * np.eye(3)["xyz".index(axis)]
    return cv2.Rodrigues(vector)[0]


@pytest.fixture(scope="session")
def walk():
    """Action rows to camera-to-world matrices: y is down, so that a turn to the right is one about +y."""

    def cameras(rows, step=1.0, world=None, scale=1.0):
        heading = np.cumsum(np.asarray(rows, float)[:, YAW])
        elevation = np.cumsum(np.asarray(rows, float)[:, PITCH])
        position, result = np.zeros(3), []
        for t, row in enumerate(rows):
            if t:
                middle = rotation("y", heading[t - 1] + row[YAW] / 2)
                position = position + middle @ np.array([row[LATERAL], 0, row[LONGITUDINAL]]) * step
            camera = np.eye(4)
            camera[:3, :3] = rotation("y", heading[t]) @ rotation("x", elevation[t])
            camera[:3, 3] = position * scale
            result.append(camera)
        result = np.stack(result)
        return result if world is None else world @ result

    return cameras


@pytest.fixture(scope="session")
def stroll():
    """Rows of a stroll of ``length`` frames that goes ahead, turns both ways and stops for a while."""

    def rows(length, seed=0):
        rng = np.random.default_rng(seed)
        rows = np.zeros((length, 6), np.float32)
        rows[:, PERSPECTIVE] = 1
        for start in range(1, length, 5):
            rows[start : start + 5, YAW] = rng.choice([-6.0, 0.0, 6.0])
            rows[start : start + 5, LONGITUDINAL] = rng.choice([0, 1, 1])
        return rows

    return rows


@pytest.fixture(scope="session")
def film():
    """Write a video of a striped wall that scrolls with a heading; one frame per heading (degrees)."""

    def write(path, headings, rate=10.0, size=(36, 64), level=1.0):
        path.parent.mkdir(parents=True, exist_ok=True)
        height, width = size
        picture = np.random.default_rng(1).integers(0, 256, (1, width // 4, 3)).repeat(4, 1).repeat(height, 0)
        writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), rate, (width, height))
        for heading in headings:
            writer.write((np.roll(picture, -round(float(heading)), axis=1) * level).astype(np.uint8))
        writer.release()

    return write
