"""Teach the `mini` audio tower what mn04 hears: `python -m training.audio_tower --minutes 90`.

The student is a residual net of plain 3x3 convolutions over (64 mels, frames), fully
convolutional and pooled over time, so any length works. It learns the teacher's z-scored logits
z = (logit - mu) / sigma from the pool of mixtures:

    loss = 1 - cos(student, z) + 0.3 * mean((student - z)^2) + 0.3 * KL(q(z) || q(student))

where q(.) = softmax(25 * cosine to text rows): what the tower is for is choosing among labels,
so it also learns how the teacher chooses among 814 of them (the class names of VGGSound, FSD50K
and AudioSet in tag space).

Time-limited: the learning rate falls along the share of `--minutes` that has passed. The
checkpoint `training/work/audio_tower.pt` is written every two minutes and taken up again by the
next run; the curve goes to `training/work/audio_curve.csv`. What is kept is a moving average of
the weights. Shards added to the pool while it trains are picked up.
"""

import argparse
import copy
import csv
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, distributed, multiprocessing, nn
from torch.nn import functional

from training.collect import WORK
from training.pool import LENGTHS, POOL

CHECKPOINT = WORK / "audio_tower.pt"
CURVE = WORK / "audio_curve.csv"
TAGS = 527
SHARPNESS = 25.0


@dataclass(frozen=True)
class Shape:
    """The net's widths and how many residual blocks follow each halving of the map."""

    stem: int = 32
    widths: tuple[int, ...] = (48, 96, 192)
    blocks: tuple[int, ...] = (1, 1, 2)
    head: int = 384


def _convolution(inward: int, outward: int, *, stride: int = 1, kernel: int = 3) -> nn.Sequential:
    """Return a convolution with batch norm."""
    return nn.Sequential(
        nn.Conv2d(inward, outward, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outward),
    )


class Residual(nn.Module):
    """Two 3x3 convolutions with a gate on the channels, added to what came in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = _convolution(width, width)
        self.second = _convolution(width, width)
        self.gate = nn.Sequential(
            nn.Linear(width, width // 4), nn.ReLU(), nn.Linear(width // 4, width), nn.Sigmoid()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return a map of the same shape."""
        y = self.second(functional.relu(self.first(x)))
        return functional.relu(x + y * self.gate(y.mean((2, 3)))[:, :, None, None])


class AudioTower(nn.Module):
    """Log-mel (batch, 1, 64, frames) to z-scored logits (batch, 527)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        layers: list[nn.Module] = [_convolution(1, shape.stem, stride=2, kernel=5), nn.ReLU()]
        width = shape.stem
        for wider, blocks in zip(shape.widths, shape.blocks, strict=True):
            layers += [_convolution(width, wider, stride=2), nn.ReLU()]
            layers += [Residual(wider) for _ in range(blocks)]
            width = wider
        bands = 64 // 2 ** (1 + len(shape.widths))
        self.features = nn.Sequential(*layers)
        self.collapse = nn.Sequential(
            nn.Conv2d(width, shape.head, (bands, 1), bias=False), nn.BatchNorm2d(shape.head)
        )
        self.tags = nn.Linear(2 * shape.head, TAGS)

    def forward(self, log_mel: Tensor) -> Tensor:
        """Return the tags of a batch of clips of one length."""
        x = functional.relu(self.collapse(self.features(log_mel)))[:, :, 0]
        return self.tags(torch.cat([x.mean(2), x.amax(2)], dim=1))


class Pool:
    """One worker's shards, held in memory by length; new ones are read as they appear."""

    def __init__(self, folder: Path, rank: int, workers: int) -> None:
        self._folder, self._rank, self._workers = folder, rank, workers
        self._seen: set[str] = set()
        self._parts: dict[int, list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]] = {}
        self._queues: dict[int, list[tuple[int, int]]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read the shards that have come since the last call."""
        for path in sorted(self._folder.glob("[0-9]*.npz")):
            mine = int(path.stem) // len(LENGTHS) % self._workers == self._rank
            if mine and path.name not in self._seen:
                with np.load(path) as shard:
                    part = (shard["mel"], shard["logits"])
                self._parts.setdefault(part[0].shape[2], []).append(part)
                self._seen.add(path.name)

    @property
    def size(self) -> int:
        """Return how many mixtures there are."""
        return sum(len(mel) for parts in self._parts.values() for mel, _ in parts)

    def batch(self, frames: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Return mixtures of one length worth about `frames` frames, each once a pass."""
        length = int(rng.choice([n for n, parts in self._parts.items() for _ in parts]))
        count, parts = max(1, frames // length), self._parts[length]
        queue = self._queues.setdefault(length, [])
        if len(queue) < count:
            fresh = [(p, i) for p, (mel, _) in enumerate(parts) for i in range(len(mel))]
            rng.shuffle(fresh)
            queue[:0] = fresh
        chosen = [queue.pop() for _ in range(count)]
        shifts = rng.integers(length, size=count)
        mel = [np.roll(parts[p][0][i], s, axis=1) for (p, i), s in zip(chosen, shifts, strict=True)]
        logits = np.stack([parts[p][1][i] for p, i in chosen])
        return (
            torch.from_numpy(np.stack(mel)[:, None].astype(np.float32)),
            torch.from_numpy(logits.astype(np.float32)),
        )


def distillation_loss(student: Tensor, target: Tensor, text: Tensor) -> Tensor:
    """Return the loss of the module's docstring, the mean over the batch."""
    mine, theirs = functional.normalize(student, dim=1), functional.normalize(target, dim=1)
    choice = functional.kl_div(
        functional.log_softmax(SHARPNESS * mine @ text.T, dim=1),
        functional.log_softmax(SHARPNESS * theirs @ text.T, dim=1),
        reduction="batchmean",
        log_target=True,
    )
    distance = (1 - (mine * theirs).sum(dim=1)).mean()
    return distance + 0.3 * functional.mse_loss(student, target) + 0.3 * choice


def orthogonalise(update: Tensor, steps: int = 5) -> Tensor:
    """Return the nearest (semi-)orthogonal matrix, roughly, by Newton-Schulz (Muon)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = update / (update.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


class Muon(torch.optim.Optimizer):
    """Momentum whose step for a convolution is made orthogonal: large steps, all directions.

    The workers share the work: each makes the steps of its own weights and sends them round.
    """

    def __init__(self, weights: list[nn.Parameter], lr: float, decay: float = 0.01) -> None:
        super().__init__(weights, {"lr": lr, "decay": decay, "momentum": 0.95})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Move every weight once."""
        for group in self.param_groups:
            updates = []
            for number, weight in enumerate(group["params"]):
                state = self.state[weight]
                if "m" not in state:
                    state["m"] = torch.zeros_like(weight)
                state["m"].lerp_(weight.grad, 1 - group["momentum"])
                if number % distributed.get_world_size() == distributed.get_rank():
                    update = weight.grad.lerp(state["m"], group["momentum"]).flatten(1)
                    tall = update.shape[0] > update.shape[1]
                    update = orthogonalise(update.T if tall else update)
                    updates.append((update.T if tall else update).flatten())
                else:
                    updates.append(torch.zeros(weight.numel()))
            together = torch.cat(updates)
            distributed.all_reduce(together)
            parts = together.split([weight.numel() for weight in group["params"]])
            for weight, update in zip(group["params"], parts, strict=True):
                scale = max(1.0, weight.shape[0] / weight[0].numel()) ** 0.5
                weight.mul_(1 - group["lr"] * group["decay"])
                weight.add_(update.view(weight.shape), alpha=-group["lr"] * scale)


@torch.no_grad()
def share_gradients(tower: AudioTower) -> None:
    """Replace each worker's gradients by the mean over the workers."""
    gradients = [p.grad for p in tower.parameters() if p.grad is not None]
    together = torch.cat([g.flatten() for g in gradients])
    distributed.all_reduce(together)
    together /= distributed.get_world_size()
    for gradient, part in zip(
        gradients, together.split([g.numel() for g in gradients]), strict=True
    ):
        gradient.copy_(part.view(gradient.shape))


def shared_clock(seconds: float) -> float:
    """Return worker 0's reading, so that all stop and slow down together."""
    reading = torch.tensor([seconds])
    distributed.broadcast(reading, src=0)
    return float(reading)


def optimisers(tower: AudioTower, kind: str) -> list[torch.optim.Optimizer]:
    """Return Muon for the convolutions and AdamW for the rest, or AdamW for all."""
    convolutions = [p for p in tower.parameters() if p.ndim == 4 and p.shape[1] > 1]
    inner = {id(p) for p in convolutions}
    rest = [p for p in tower.parameters() if id(p) not in inner]
    if kind == "muon":
        return [Muon(convolutions, lr=0.02), torch.optim.AdamW(rest, lr=2e-3, weight_decay=0.02)]
    return [torch.optim.AdamW(tower.parameters(), lr=2e-3, weight_decay=0.02)]


def rate_at(share: float) -> float:
    """Return the learning rate's factor after `share` of the time: up, level, then down to 0."""
    if share < 0.02:
        return share / 0.02
    return min(1.0, max(0.0, (1.0 - share) / 0.6))


@dataclass(frozen=True)
class HeldOut:
    """Clips that never train: what they sound like, what the teacher says, what they are."""

    mel: Tensor
    logits: Tensor
    answers: Tensor
    text: Tensor

    @torch.no_grad()
    def measure(self, tower: AudioTower, mu: Tensor, sigma: Tensor) -> tuple[float, float]:
        """Return the mean cosine to the teacher and the zero-shot accuracy."""
        tower.eval()
        rows = torch.cat([functional.normalize(tower(part), dim=1) for part in self.mel.split(50)])
        teacher = functional.normalize((self.logits - mu) / sigma, dim=1)
        right = (rows @ self.text.T).argmax(dim=1) == self.answers
        return float((rows * teacher).sum(dim=1).mean()), float(right.float().mean())


def read_held_out() -> HeldOut:
    """Return the validation clips that `training.evaluate --prepare` wrote."""
    with np.load(WORK / "validation.npz") as file, np.load(WORK / "text_rows.npz") as text:
        return HeldOut(
            torch.from_numpy(file["mel"].astype(np.float32))[:, None],
            torch.from_numpy(file["logits"].astype(np.float32)),
            torch.from_numpy(file["answers"]),
            torch.from_numpy(text["esc_rows"]),
        )


class Average:
    """A moving average of a net's weights and running statistics."""

    def __init__(self, tower: AudioTower, decay: float) -> None:
        self.tower, self._decay, self._steps = copy.deepcopy(tower), decay, 0

    def resume(self, state: dict[str, Tensor], steps: int) -> None:
        """Take up an average that was saved."""
        self.tower.load_state_dict(state)
        self._steps = steps

    @torch.no_grad()
    def update(self, tower: AudioTower) -> None:
        """Move towards the net; quickly at first."""
        self._steps += 1
        share = 1 - min(self._decay, self._steps / (self._steps + 10))
        for mine, new in zip(
            self.tower.state_dict().values(), tower.state_dict().values(), strict=True
        ):
            if mine.is_floating_point():
                mine.lerp_(new, share)


def train(rank: int, settings: argparse.Namespace) -> None:
    """Train, as worker `rank`, until the time is up."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=settings.meeting, rank=rank, world_size=settings.workers
    )
    torch.manual_seed(1)
    shape = Shape(blocks=tuple(settings.blocks), widths=tuple(settings.widths), stem=settings.stem)
    tower = AudioTower(shape).to(memory_format=torch.channels_last)
    average, engines = Average(tower, settings.average), optimisers(tower, settings.optimiser)
    peaks = [engine.param_groups[0]["lr"] for engine in engines]
    with np.load(WORK / "teacher.npz") as file:
        mu, sigma = torch.from_numpy(file["mu"]), torch.from_numpy(file["sigma"])
    pool = Pool(POOL, rank, settings.workers)
    held_out = read_held_out()
    text = torch.from_numpy(np.load(WORK / "text_rows.npz")["rows"])
    before, clips, steps = 0.0, 0, 0
    checkpoint = Path(settings.checkpoint)
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        tower.load_state_dict(saved["tower"])
        average.resume(saved["average"], saved["steps"])
        for engine, state in zip(engines, saved["engines"], strict=True):
            engine.load_state_dict(state)
        before, clips, steps = saved["seconds"], saved["clips"], saved["steps"]
    rng = np.random.default_rng([1, rank, steps])
    began, logged, losses = time.monotonic(), time.monotonic(), []
    total = settings.minutes * 60
    while (seconds := shared_clock(before + time.monotonic() - began)) < total:
        for engine, peak in zip(engines, peaks, strict=True):
            for group in engine.param_groups:
                group["lr"] = peak * settings.speed * rate_at(seconds / total)
        mel, logits = pool.batch(settings.frames, rng)
        tower.train()
        loss = distillation_loss(
            tower(mel.contiguous(memory_format=torch.channels_last)), (logits - mu) / sigma, text
        )
        tower.zero_grad(set_to_none=True)
        loss.backward()
        share_gradients(tower)
        for engine in engines:
            engine.step()
        average.update(tower)
        losses.append(float(loss.detach()))
        clips, steps = clips + len(mel) * settings.workers, steps + 1
        if time.monotonic() - logged > settings.log_seconds:
            pool.refresh()
            if rank == 0:
                found = held_out.measure(average.tower, mu, sigma)
                row = [f"{seconds:.0f}", steps, clips, pool.size, f"{np.mean(losses):.4f}"]
                _log(Path(settings.curve), [*row, *(f"{value:.4f}" for value in found)])
                _save(checkpoint, tower, average, engines, shape, seconds, clips, steps)
            logged, losses = time.monotonic(), []
    if rank == 0:
        found = held_out.measure(average.tower, mu, sigma)
        row = [f"{total:.0f}", steps, clips, pool.size, f"{np.mean(losses or [np.nan]):.4f}"]
        _log(Path(settings.curve), [*row, *(f"{value:.4f}" for value in found)])
        _save(checkpoint, tower, average, engines, shape, total, clips, steps)
    distributed.destroy_process_group()


def _save(
    path: Path,
    tower: AudioTower,
    average: Average,
    engines: list[torch.optim.Optimizer],
    shape: Shape,
    seconds: float,
    clips: int,
    steps: int,
) -> None:
    """Write the checkpoint beside its place, then move it there."""
    state = {
        "tower": tower.state_dict(),
        "average": average.tower.state_dict(),
        "engines": [engine.state_dict() for engine in engines],
        "shape": asdict(shape),
        "seconds": seconds,
        "clips": clips,
        "steps": steps,
    }
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def _log(path: Path, row: list[Any]) -> None:
    """Add a line to the curve, with a heading if it is the first."""
    heading = ["seconds", "steps", "clips", "pool", "loss", "held_out_cosine", "held_out_accuracy"]
    new = not path.exists()
    with open(path, "a", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerows([heading, row] if new else [row])
    print(*row, flush=True)


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=90.0)
    parser.add_argument(
        "--frames", type=int, default=8_000, help="spectrogram frames a batch and worker"
    )
    parser.add_argument("--optimiser", choices=("muon", "adamw"), default="muon")
    parser.add_argument("--speed", type=float, default=1.0, help="factor on the learning rates")
    parser.add_argument("--average", type=float, default=0.995)
    parser.add_argument("--stem", type=int, default=32)
    parser.add_argument("--widths", type=int, nargs=3, default=(48, 96, 192))
    parser.add_argument("--blocks", type=int, nargs=3, default=(1, 1, 2))
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--log-seconds", type=float, default=60.0)
    parser.add_argument("--checkpoint", default=str(CHECKPOINT))
    parser.add_argument("--curve", default=str(CURVE))
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings.meeting = f"file://{folder}/meeting"
        multiprocessing.spawn(train, (settings,), nprocs=settings.workers)


if __name__ == "__main__":
    main()
