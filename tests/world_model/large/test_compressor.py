"""The history compressor looks back as far as it says, and never ahead."""

from __future__ import annotations

import pytest
import torch

from world_model.large.compressor import REACH, TEMPORAL_STRIDE, HistoryCompressor


@pytest.fixture(scope="module")
def compressor(toy):
    torch.manual_seed(0)
    compressor = HistoryCompressor(toy).requires_grad_(False)
    torch.nn.init.normal_(compressor.output.weight)  # it starts at zero
    return compressor


def tokens_of(compressor, history):
    return compressor(history).unflatten(1, (history.shape[1] // TEMPORAL_STRIDE, -1))


def test_a_window_of_the_history_gives_the_tokens_of_all_of_it(compressor):
    history = torch.randn(2, 40, 12, 8, 8)
    whole = tokens_of(compressor, history)
    for last in (13, 17, 19):
        window = history[:, TEMPORAL_STRIDE * (last + 1) - REACH : TEMPORAL_STRIDE * (last + 1)]
        torch.testing.assert_close(tokens_of(compressor, window)[:, -1], whole[:, last])


def test_no_token_sees_a_later_latent(compressor):
    history = torch.randn(1, 12, 12, 8, 8)
    changed = history.clone()
    changed[:, 8:] += 1
    before, after = tokens_of(compressor, history), tokens_of(compressor, changed)
    assert torch.equal(before[:, :4], after[:, :4]) and not torch.equal(before[:, 4], after[:, 4])
