"""Vision encoders as they are exported: pixels in, rows of the decoder's width out.

Letters: n images or tiles, H and W pixels, P patches of all images together, F features of one
tile, D the decoder's width.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

#: additive masks: what is not seen
NEVER = torch.finfo(torch.float32).min


class Tiles(nn.Module):
    """Idefics3 and SmolVLM: pixel_values (B,n,3,H,W), pixel_attention_mask (B,n,H,W) -> (n,F,D).

    transformers finds the positions of patches tile by tile, in a loop that tracing would unroll,
    and leaves empty tiles out; here positions are computed for all tiles, and none is left out.
    """

    inputs = ("pixel_values", "pixel_attention_mask")

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.tower, self.connector = model.model.vision_model, model.model.connector
        self.side = self.tower.embeddings.num_patches_per_side
        self.patch = self.tower.patch_size
        self.register_buffer("bounds", torch.arange(1 / self.side, 1.0, 1 / self.side))

    def forward(self, pixel_values: Tensor, pixel_attention_mask: Tensor) -> Tensor:
        pixels, mask = pixel_values.flatten(0, 1), pixel_attention_mask.flatten(0, 1)
        seen = nn.functional.max_pool2d(mask.float()[:, None], self.patch)[:, 0]  # (n,h,w)
        x = self.tower.embeddings.patch_embedding(pixels).flatten(2).transpose(1, 2)  # (n,h*w,C)
        rows = self.buckets(seen[:, :, 0])  # (n,h)
        columns = self.buckets(seen[:, 0])  # (n,w)
        places = rows[:, :, None] * self.side + columns[:, None]  # (n,h,w)
        places = torch.where(seen > 0, places, torch.zeros_like(places)).flatten(1)
        x = x + self.tower.embeddings.position_embedding(places)
        hidden = ((1.0 - seen) * NEVER).flatten(1)[:, None, None]  # (n,1,1,h*w)
        x = self.tower.encoder(inputs_embeds=x, attention_mask=hidden).last_hidden_state
        return self.connector(self.tower.post_layernorm(x))

    def buckets(self, seen: Tensor) -> Tensor:
        """The positions (n,h) of the patches along a side, those in sight being `seen` (n,h)."""
        count = seen.sum(1, keepdim=True)
        steps = torch.ones_like(seen).cumsum(1) - 1.0
        fraction = steps / count * (1 - 1e-6)
        return (fraction[..., None] >= self.bounds).long().sum(-1)


class Patches(nn.Module):
    """Qwen2-VL and Qwen2.5-VL: patches (P, C*t*p*p) and their grids (n,3) -> (P/4, D).

    Whatever hangs on the grids is computed from them by tensor operations, so that the graph is
    right for any images. Attention within an image, a frame or a window is a mask over all
    patches; patches stay in their order (transformers sorts them by windows and back).
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.tower = model.model.visual
        config = self.tower.config
        self.merge = config.spatial_merge_size
        self.heads = config.num_heads
        self.window = getattr(config, "window_size", 0) // self.merge // config.patch_size
        self.full = getattr(config, "fullatt_block_indexes", range(len(self.tower.blocks)))
        self.inputs = ("pixel_values", "image_grid_thw" if self.window else "grid_thw")

    def forward(self, pixel_values: Tensor, grid: Tensor) -> Tensor:
        x = self.tower.patch_embed(pixel_values)  # (P,C)
        image, frame, row, column = self.places(x.shape[0], grid)  # (P,) each
        frequencies = self.tower.rotary_pos_emb.inv_freq
        angles = torch.stack([row, column], 1)[..., None].float() * frequencies  # (P,2,d/4)
        angles = angles.flatten(1).repeat(1, 2)  # (P,d)
        alike = same(image) & same(frame)  # (P,P)
        wide = hide(alike)
        if self.window:
            step = self.merge * self.window
            narrow = hide(alike & same(floor(row, step)) & same(floor(column, step)))
        for i, block in enumerate(self.tower.blocks):
            mask = wide if i in self.full else narrow
            x = x + self.attend(block.attn, block.norm1(x), angles, mask)
            x = x + block.mlp(block.norm2(x))
        return self.tower.merger(x)

    def places(self, count: Tensor | int, grid: Tensor) -> tuple[Tensor, ...]:
        """Image, frame, row and column of each patch; the four patches of a block come together."""
        sizes = grid.prod(1)  # (n,)
        stops = sizes.cumsum(0)
        place = torch.arange(count)
        image = (place[:, None] >= stops).long().sum(1)
        height, width = grid[:, 1][image], grid[:, 2][image]
        place = place - (stops - sizes)[image]
        area = height * width
        frame = floor(place, area)
        place = place - frame * area
        block = floor(place, self.merge**2)
        inner = place - block * self.merge**2
        across = floor(width, self.merge)
        block_row, inner_row = floor(block, across), floor(inner, self.merge)
        row = block_row * self.merge + inner_row
        column = (block - block_row * across) * self.merge + inner - inner_row * self.merge
        return image, frame, row, column

    def attend(self, layer: Any, x: Tensor, angles: Tensor, mask: Tensor) -> Tensor:
        """Attention of (P,C) with rotated queries and keys."""
        q, k, v = layer.qkv(x).unflatten(1, (3, self.heads, -1)).permute(1, 2, 0, 3).unbind(0)
        cos, sin = angles.cos(), angles.sin()
        q, k = (part * cos + turned(part) * sin for part in (q, k))  # (heads,P,d)
        scores = q @ k.transpose(1, 2) * layer.scaling + mask
        return layer.proj((scores.softmax(-1) @ v).transpose(0, 1).flatten(1))


def floor(a: Tensor, b: Tensor | int) -> Tensor:
    """The whole quotient of numbers that are not negative."""
    return torch.div(a, b, rounding_mode="trunc")


def same(a: Tensor) -> Tensor:
    """(P,P): which pairs of (P,) are equal."""
    return a[:, None] == a


def hide(allowed: Tensor) -> Tensor:
    """The additive mask of what may be seen."""
    return (~allowed).float() * NEVER


def turned(x: Tensor) -> Tensor:
    """The halves (a, b) of the last axis as (-b, a)."""
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


class Whole(nn.Module):
    """PaliGemma and Gemma3: pixel_values (n,3,H,W) -> (n,F,D), by the model's own method."""

    inputs = ("pixel_values",)

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model.model

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.model.get_image_features(pixel_values)


class Layer(nn.Module):
    """LLaVA: pixel_values (n,3,H,W) -> (n,F,D), from one of the tower's layers."""

    inputs = ("pixel_values",)

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model.model

    def forward(self, pixel_values: Tensor) -> Tensor:
        config = self.model.config
        states = self.model.vision_tower(pixel_values, output_hidden_states=True).hidden_states
        chosen = states[config.vision_feature_layer]
        if config.vision_feature_select_strategy == "default":
            chosen = chosen[:, 1:]  # without the class token
        return self.model.multi_modal_projector(chosen)


class AnyResolution(Layer):
    """LLaVA-OneVision: tiles (n,3,H,W) -> (n,F,D), and the row (D,) that ends a line of features.

    Tiles are put together to images outside of the graph.
    """

    outputs = ("image_features", "image_newline")

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(pixel_values), self.model.image_newline
