"""CUDA graphs: what a network launches is recorded once and launched again as a whole."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

WARM_UP = 3  # runs before a CUDA graph is recorded, as torch advises


class GraphedCalls:
    """A function of tensors as one CUDA graph for each combination of their shapes, the newest ``kept`` of them.

    Inputs are copied to where the graph reads them and results from where it leaves them. What the function writes
    into its inputs stays in the copies.
    """

    def __init__(self, function: Callable, kept: int = 8) -> None:
        self.function, self.kept = function, kept
        self.graphs: OrderedDict[tuple, tuple[list[Tensor], Callable[[], object]]] = OrderedDict()

    def __call__(self, *given: object) -> object:
        leaves, structure = tree_flatten(given)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        others = tuple(leaf for leaf in leaves if not isinstance(leaf, Tensor))
        key = structure, others, tuple((x.shape, x.dtype, x.device) for x in tensors)
        if key not in self.graphs:
            while len(self.graphs) >= self.kept:
                self.graphs.popitem(last=False)
            places = [x.clone() for x in tensors]
            filled = iter(places)
            copies = tree_unflatten([next(filled) if isinstance(x, Tensor) else x for x in leaves], structure)
            self.graphs[key] = places, record(lambda: self.function(*copies))
        self.graphs.move_to_end(key)
        places, replay = self.graphs[key]
        for place, tensor in zip(places, tensors, strict=True):
            place.copy_(tensor)
        return tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, replay())


def record(run: Callable[[], object]) -> Callable[[], object]:
    """Record what ``run`` launches; the result launches it again and gives the same tensors, filled anew."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run()

    def replay() -> object:
        graph.replay()
        return results

    return replay
