"""The network of `mini`'s text tower: a small transformer over fixed piece vectors.

pieces (n, columns), fixed -> linear -> 3 pre-norm transformer layers of width 256
-> attention pooling; plus a linear path from the pooled pieces -> 384, unit norm
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from training.text_vocabulary import LONGEST

HIDDEN = 256
HEADS = 4
LAYERS = 3
SENTENCE = 384


class Layer(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(HIDDEN)
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.out = nn.Linear(HIDDEN, HIDDEN)
        self.norm_feed = nn.LayerNorm(HIDDEN)
        self.up = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.down = nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return x (batch, length, width) after attention over the unmasked pieces."""
        batch, length, _ = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(batch, length, 3, HEADS, HIDDEN // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, HIDDEN))
        fed: Tensor = x + self.down(functional.relu(self.up(self.norm_feed(x))))
        return fed


class Tower(nn.Module):
    """Piece ids to unit-norm sentence vectors."""

    pieces: Tensor
    noise = 0.0
    """Noise on the pieces while training, as a share of each column's deviation."""

    def __init__(self, pieces: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("pieces", torch.from_numpy(pieces), persistent=False)
        self.enter = nn.Linear(pieces.shape[1], HIDDEN)
        self.position = nn.Parameter(torch.randn(LONGEST, HIDDEN) * 0.02)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)
        self.weigh = nn.Linear(HIDDEN, 2)
        self.leave = nn.Linear(HIDDEN, SENTENCE)
        self.skip = nn.Linear(pieces.shape[1], SENTENCE)
        nn.init.zeros_(self.weigh.weight)

    def pool(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the pooled outputs of the layers (batch, 256) and pooled pieces."""
        pieces = self.pieces[ids]
        if self.training and self.noise:
            pieces = pieces + self.noise * self.pieces.std(0) * torch.randn_like(pieces)
        x = self.enter(pieces) + self.position[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, mask)
        x = self.norm(x)
        weights = self.weigh(x).masked_fill(~mask[..., None], -1e4).softmax(1)
        pooled = torch.einsum("blk,bld->bkd", weights[..., :1], x)[:, 0]
        direct = torch.einsum("blk,bld->bkd", weights[..., 1:], pieces)[:, 0]
        return pooled, direct

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return (batch, 384); `mask` is true where `ids` holds a piece."""
        pooled, direct = self.pool(ids, mask)
        return functional.normalize(self.leave(pooled) + self.skip(direct), dim=1)
