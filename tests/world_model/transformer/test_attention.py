"""FlexAttention with a layout's mask is the attention of everywhere else."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from world_model.config import TINY
from world_model.transformer.attention import attention, block_mask, sparse
from world_model.transformer.masks import teacher_forcing

HEADS, HEAD = 2, 16
LAYOUTS = [(2, 0), (9, 0), (12, 5)]  # latents and first target; 3, 13 and 17 groups, none a multiple of 128 tokens


def drawn(length: int, device: str = "cpu") -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, HEADS, length, HEAD, generator=generator).to(device) for _ in range(3)]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(("latents", "first_target"), LAYOUTS)
def test_the_sparse_form_equals_the_plain_one(latents, first_target):
    mask = teacher_forcing(TINY, latents, first_target).mask
    inputs = drawn(len(mask))
    plain = attention(*inputs, mask)
    torch.testing.assert_close(sparse(*inputs, mask, flex_attention), plain, atol=1e-5, rtol=1e-5)
    everything = torch.ones_like(mask)
    assert not torch.allclose(sparse(*inputs, everything, flex_attention), plain, atol=1e-2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize(("latents", "first_target"), LAYOUTS)
def test_training_on_cuda_equals_training_on_a_cpu(latents, first_target):
    mask = teacher_forcing(TINY, latents, first_target).mask
    results = {}
    for device in ("cpu", "cuda"):
        inputs = [tensor.requires_grad_() for tensor in drawn(len(mask), device)]
        output = attention(*inputs, mask.to(device))
        output.square().sum().backward()
        results[device] = [output, *(tensor.grad for tensor in inputs)]
    for here, there in zip(results["cpu"], results["cuda"], strict=True):
        torch.testing.assert_close(there.cpu(), here, atol=2e-2, rtol=2e-2)  # the kernel multiplies in TF32


def test_a_mask_is_turned_into_blocks_once():
    mask = teacher_forcing(TINY, 9, 0).mask
    device = torch.device("cpu")
    assert block_mask(mask, device) is block_mask(mask, device)
    assert block_mask(mask.clone(), device) is not block_mask(mask, device)


def test_blocks_that_nobody_sees_are_left_out():
    """Of 40 latents, each sees a few before it: most blocks far from the diagonal are empty."""
    mask = teacher_forcing(TINY, 40, 0).mask
    assert block_mask(mask, torch.device("cpu")).sparsity() > 50
