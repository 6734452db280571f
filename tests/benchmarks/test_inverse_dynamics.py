"""The yardstick for controls: what it estimates, what it is trained on, and the weights that come with it."""

import itertools

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch.nn import functional

from benchmarks import inverse_dynamics, report
from benchmarks.inverse_dynamics import CLASSES, FEATURES, InverseDynamics
from world_model.controls import ACTION_DIM, JUMP, LATERAL, LONGITUDINAL, PITCH, YAW, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.store import ClipStore, ShardWriter, write_manifest

LARGEST_FILE = 1_000_000  # bytes; it lies in the repository
PIXEL = 1.6  # degrees, about what one of 64 pixels spans


def random_videos(seed: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (*shape, 3), dtype=np.uint8))


def turning_stripes(seed: int, videos: int, frames: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Videos of stripes that move to the left while the camera turns right, and their rows."""
    generator = torch.Generator().manual_seed(seed)
    shifts = torch.randint(-6, 7, (videos, frames), generator=generator)
    stripes = torch.rand(videos, 3, 16, generator=generator).repeat_interleave(4, dim=-1) * 255
    rows, pictures = torch.zeros(videos, frames, ACTION_DIM), torch.empty(videos, frames, 64, 64, 3, dtype=torch.uint8)
    rows[..., YAW] = shifts * PIXEL
    for video, shown in itertools.product(range(videos), range(frames)):
        moved = stripes[video].roll(-int(shifts[video, 1 : shown + 1].sum()), dims=-1)
        pictures[video, shown] = moved.T.to(torch.uint8)
    return pictures, rows


def endless_stripes():
    return (turning_stripes(seed, 8) for seed in itertools.count(1))


def store(folder, clips: int, frames: int = 10, split: str = "train") -> ClipStore:
    folder.mkdir()
    writer = ShardWriter(folder / "shard-00000.safetensors")
    for index in range(clips):
        rows = np.full((frames, ACTION_DIM), index % 2, np.float32)
        captions = ((0, StructuredCaption("a hall")),)
        writer.add(Clip(random_videos(index, frames, 16, 16).numpy(), rows, captions))
    write_manifest(folder, [writer.close()], {"split": split})
    return ClipStore(folder)


def test_training_learns_which_way_the_camera_turns():
    steps = 60
    progress = ((k + 1) / (steps + 1) for k in range(steps))
    model = inverse_dynamics.train(InverseDynamics(), endless_stripes(), progress)
    frames, rows = turning_stripes(0, 24)
    wanted, estimated = rows[:, 1:, YAW], model.estimate(frames)[..., YAW]
    turning = wanted.abs() > PIXEL
    assert (wanted.sign() == estimated.sign())[turning].float().mean() > 0.9


def test_estimates_are_action_rows_of_every_transition():
    rows = InverseDynamics().eval().estimate(random_videos(0, 3, 5, 64, 64))
    assert rows.shape == (3, 4, ACTION_DIM) and rows.dtype == torch.float32
    for column, values in CLASSES.items():
        assert set(rows[..., column].flatten().tolist()) <= set(values)


def test_an_estimate_rests_on_its_two_frames_alone():
    model, video = InverseDynamics().eval(), random_videos(1, 1, 5, 64, 64)
    torch.testing.assert_close(model.estimate(video)[:, 2], model.estimate(video[:, 2:4])[:, 0])


def test_pictures_of_another_size_are_resized():
    model, small = InverseDynamics().eval(), random_videos(2, 2, 3, 32, 32)
    large = small.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
    torch.testing.assert_close(model.estimate(small), model.estimate(large))


def test_a_single_frame_is_no_transition():
    with pytest.raises(ValueError, match="the video has 1 frames and a transition takes 2"):
        InverseDynamics().estimate(random_videos(3, 1, 1, 64, 64))


def test_features_are_standard_over_the_frames_they_were_standardised_on():
    model, frames = InverseDynamics().eval(), random_videos(4, 600, 16, 16)
    inverse_dynamics.standardise(model, frames)
    features = model.features(frames)
    assert features.shape == (600, FEATURES)
    torch.testing.assert_close(features.mean(0), torch.zeros(FEATURES), atol=1e-3, rtol=0)
    torch.testing.assert_close(features.std(0), torch.ones(FEATURES), atol=1e-3, rtol=0)


def test_a_mirrored_window_turns_and_strafes_the_other_way():
    ramp = torch.arange(64, dtype=torch.uint8)[:, None].expand(20, 3, 64, 64, 3)
    rows = torch.zeros(20, 3, ACTION_DIM)
    rows[..., [PITCH, YAW, LONGITUDINAL, LATERAL, JUMP]] = torch.tensor([2.0, 5, 1, -1, 1])
    pictures, varied = inverse_dynamics.vary(ramp, rows, torch.Generator().manual_seed(0))
    mirrored = pictures[:, 0, 0, 0, 0] > pictures[:, 0, 0, -1, 0]
    assert 0 < mirrored.sum() < 20
    sign = torch.where(mirrored, -1.0, 1.0)[:, None]
    torch.testing.assert_close(varied[..., YAW], 5 * sign.expand(20, 3))
    torch.testing.assert_close(varied[..., LATERAL], -sign.expand(20, 3))
    assert (varied[..., [PITCH, LONGITUDINAL, JUMP]] == torch.tensor([2.0, 1, 1])).all()


def test_variation_softens_every_second_window():
    frames, rows = random_videos(5, 6, 3, 64, 64), torch.zeros(6, 3, ACTION_DIM)
    pictures, _ = inverse_dynamics.vary(frames, rows, torch.Generator().manual_seed(1))
    crispness = functional.l1_loss(pictures[..., 1:, :], pictures[..., :-1, :], reduction="none").mean(dim=(1, 2, 3, 4))
    assert crispness[::2].mean() < 0.8 * crispness[1::2].mean()


def test_angles_and_classes_are_compared_in_their_units():
    estimated, commanded = np.zeros((2, ACTION_DIM)), np.zeros((2, ACTION_DIM))
    commanded[0, [PITCH, YAW]], commanded[1, LATERAL] = (-1, 3), 1
    np.testing.assert_allclose(inverse_dynamics.rotation_error(estimated, commanded), [4, 0])
    assert inverse_dynamics.same_translation(estimated, commanded).tolist() == [True, False]


def test_the_weights_that_come_along_are_small_and_licensed():
    assert inverse_dynamics.WEIGHTS.stat().st_size < LARGEST_FILE
    assert sum(parameter.numel() for parameter in inverse_dynamics.load().parameters()) <= 320_000
    with safe_open(inverse_dynamics.WEIGHTS, framework="pt") as file:
        assert "Freedoom" in file.metadata()["licence"]


def test_foreign_weights_are_refused(tmp_path):
    (tmp_path / "weights.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="does not hold the inverse-dynamics weights"):
        inverse_dynamics.load(tmp_path / "weights.safetensors")


def test_the_command_trains_and_writes_weights(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(inverse_dynamics, "HELD_OUT", 2)
    store(tmp_path / "data", 4)
    settings = ["--data", str(tmp_path / "data"), "--minutes", "0.01", "--out", str(tmp_path / "new" / "w.safetensors")]
    assert report.run(inverse_dynamics.main, inverse_dynamics.parse(settings)) == 0
    assert "| translation accuracy" in capsys.readouterr().out
    assert isinstance(inverse_dynamics.load(tmp_path / "new" / "w.safetensors"), InverseDynamics)


@pytest.mark.parametrize(
    ("clips", "frames", "split", "message"),
    [
        (2, 10, "test", "shows the levels that worlds are measured in"),
        (2, 10, "train", "has 2 of 2 clips with 9 frames; all of them, and at least 128"),
        (3, 8, "train", "has 0 of 3 clips with 9 frames"),
    ],
)
def test_a_store_that_will_not_do_is_refused(tmp_path, clips, frames, split, message):
    store(tmp_path / "data", clips, frames, split)
    settings = inverse_dynamics.parse(["--data", str(tmp_path / "data"), "--out", str(tmp_path / "w")])
    with pytest.raises(ValueError, match=message):
        inverse_dynamics.main(settings)
