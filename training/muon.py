"""Muon, an optimiser whose steps for convolutions are orthogonal, shared between processes."""

from typing import Any

import torch
from torch import Tensor, distributed, nn


def orthogonalise(update: Tensor, steps: int = 5) -> Tensor:
    """Return roughly the nearest (semi-)orthogonal matrix, by Newton-Schulz iteration."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = update / (update.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


class Muon(torch.optim.Optimizer):
    """Momentum whose step for a convolution is made orthogonal.

    Each process computes the steps of its share of the weights and sends them to the others.
    """

    def __init__(self, weights: list[nn.Parameter], lr: float, decay: float = 0.01) -> None:
        super().__init__(weights, {"lr": lr, "decay": decay, "momentum": 0.95})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Update every weight once."""
        for group in self.param_groups:
            updates = [self._update(number, w, group) for number, w in enumerate(group["params"])]
            together = torch.cat(updates)
            distributed.all_reduce(together)
            parts = together.split([weight.numel() for weight in group["params"]])
            for weight, update in zip(group["params"], parts, strict=True):
                scale = max(1.0, weight.shape[0] / weight[0].numel()) ** 0.5
                weight.mul_(1 - group["lr"] * group["decay"])
                weight.add_(update.view(weight.shape), alpha=-group["lr"] * scale)

    def _update(self, number: int, weight: nn.Parameter, group: dict[str, Any]) -> Tensor:
        """Return this process's part of the step for one weight; zeros if another computes it."""
        state = self.state[weight]
        if "m" not in state:
            state["m"] = torch.zeros_like(weight)
        state["m"].lerp_(weight.grad, 1 - group["momentum"])
        if number % distributed.get_world_size() != distributed.get_rank():
            return torch.zeros(weight.numel())
        update = weight.grad.lerp(state["m"], group["momentum"]).flatten(1)
        tall = update.shape[0] > update.shape[1]
        update = orthogonalise(update.T if tall else update)
        return (update.T if tall else update).flatten()


@torch.no_grad()
def share_gradients(net: nn.Module) -> None:
    """Replace the gradients of every process by their mean over the processes."""
    gradients = [p.grad for p in net.parameters() if p.grad is not None]
    together = torch.cat([g.flatten() for g in gradients])
    distributed.all_reduce(together)
    together /= distributed.get_world_size()
    parts = together.split([g.numel() for g in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view(gradient.shape))
