"""Train the `mini` audio tower: `python -m training.audio_tower --minutes 40`.

The student (`training.audio_net`) learns, from examples mixed on the fly (`training.mixtures`),
targets that the teacher, mn04, gives to their clean parts, as z = (logit - mu) / sigma:

    loss = 1 - cos(student, z) + 0.3 * mean((student - z)^2) + 0.3 * KL(q(z) || q(student))

where q(.) = softmax(25 * cosine to text rows) is the choice among 814 label names (the classes of
VGGSound, FSD50K and AudioSet in tag space), because the tower is used to choose among labels.

Training is limited by time: the learning rate follows the share of `--minutes` that has passed.
The checkpoint is written every two minutes and continued by the next run with the same path. The
curve goes to a csv file. The exported weights are a moving average, blended with the weights at the
start of the run (`training.export_audio`). If the file `--start` exists, a new run begins with the
weights of the first edition (see `training.rebuild`).
"""

import argparse
import copy
import csv
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, multiprocessing
from torch.nn import functional

from driftscore.backbones.mn04.tagspace import load_space
from training.audio_net import AudioTower, Shape, warm_start
from training.collect import WORK
from training.mixtures import Bank, Mixer, Recipe
from training.muon import Muon, share_gradients
from training.validation import HeldOut, read_held_out

CHECKPOINT = WORK / "audio_tower.pt"
CURVE = WORK / "audio_curve.csv"
FIRST_EDITION = WORK / "audio_first_edition.onnx"
FRAMES_PER_SECOND = 50
SHARPNESS = 25.0
SAVE_SECONDS = 120.0
LENGTHS = {2.5: 0.4, 5.0: 0.5, 10.0: 0.1}
"""Seconds of the examples in a batch, and the share of such batches."""


def batch(mixer: Mixer, frames: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return log-mels and target logits of examples of one length, about `frames` in all."""
    seconds = float(rng.choice(list(LENGTHS), p=list(LENGTHS.values())))
    count = max(1, round(frames / (seconds * FRAMES_PER_SECOND)))
    mels, logits = zip(*(mixer.example(seconds) for _ in range(count)), strict=True)
    mel = torch.from_numpy(np.stack(mels))[:, None]
    return mel.contiguous(memory_format=torch.channels_last), torch.from_numpy(np.stack(logits))


def sample_mels(count: int = 128) -> Tensor:
    """Return log-mels of the same random examples at every call, to estimate statistics from."""
    mixer = Mixer(Bank(), Recipe(), np.random.default_rng(2))
    return torch.from_numpy(np.stack([mixer.example(5.0)[0] for _ in range(count)]))[:, None]


def distillation_loss(student: Tensor, target: Tensor, text: Tensor) -> Tensor:
    """Return the loss of the module's docstring, as the mean over the batch."""
    mine, theirs = functional.normalize(student, dim=1), functional.normalize(target, dim=1)
    choice = functional.kl_div(
        functional.log_softmax(SHARPNESS * mine @ text.T, dim=1),
        functional.log_softmax(SHARPNESS * theirs @ text.T, dim=1),
        reduction="batchmean",
        log_target=True,
    )
    distance = (1 - (mine * theirs).sum(dim=1)).mean()
    return distance + 0.3 * functional.mse_loss(student, target) + 0.3 * choice


def optimisers(tower: AudioTower) -> list[torch.optim.Optimizer]:
    """Return Muon for the convolutions and AdamW for the rest."""
    convolutions = [p for p in tower.parameters() if p.ndim == 4 and p.shape[1] > 1]
    inner = {id(p) for p in convolutions}
    rest = [p for p in tower.parameters() if id(p) not in inner]
    return [Muon(convolutions, lr=0.02), torch.optim.AdamW(rest, lr=2e-3, weight_decay=0.02)]


def rate_at(share: float) -> float:
    """Return the factor on the learning rate after `share` of the time: rise, level, fall to 0."""
    if share < 0.02:
        return share / 0.02
    return min(1.0, max(0.0, (1.0 - share) / 0.7))


class Average:
    """A moving average of a network's weights and running statistics."""

    def __init__(self, tower: AudioTower, decay: float) -> None:
        self.tower, self._decay, self._steps = copy.deepcopy(tower), decay, 0

    def resume(self, state: dict[str, Tensor], steps: int) -> None:
        """Continue an average that was saved."""
        self.tower.load_state_dict(state)
        self._steps = steps

    @torch.no_grad()
    def update(self, tower: AudioTower) -> None:
        """Move towards the network; quickly at first."""
        self._steps += 1
        share = 1 - min(self._decay, self._steps / (self._steps + 10))
        pairs = zip(self.tower.state_dict().values(), tower.state_dict().values(), strict=True)
        for mine, new in pairs:
            if mine.is_floating_point():
                mine.lerp_(new, share)


class Run:
    """One process's state of a training run."""

    def __init__(self, settings: argparse.Namespace, rank: int) -> None:
        self.settings, self.rank = settings, rank
        self.shape = Shape()
        space = load_space()
        self.mu, self.sigma = torch.from_numpy(space.mu), torch.from_numpy(space.sigma)
        self.text = torch.from_numpy(np.load(WORK / "text_rows.npz")["rows"])
        self.seconds, self.examples, self.steps = 0.0, 0, 0
        torch.manual_seed(1)
        self.tower = AudioTower(self.shape).to(memory_format=torch.channels_last)
        checkpoint = Path(settings.checkpoint)
        saved = torch.load(checkpoint, weights_only=True) if checkpoint.exists() else None
        self.steps = saved["steps"] if saved else 0
        self.rng = np.random.default_rng([1, rank, self.steps])
        self.mixer = Mixer(Bank(), _recipe(settings), self.rng)
        self.engines = optimisers(self.tower)
        self.peaks = [engine.param_groups[0]["lr"] for engine in self.engines]
        self.start: dict[str, Tensor] = {}
        if saved is None and Path(settings.start).is_file():
            self._warm_start(Path(settings.start))
        self.average = Average(self.tower, settings.average)
        if saved:
            self._resume(saved)

    def _warm_start(self, model: Path) -> None:
        """Take the first edition's weights; all processes draw the same examples for this."""
        warm_start(self.tower, model, sample_mels())
        self.start = copy.deepcopy(self.tower.state_dict())

    def _resume(self, saved: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self.tower.load_state_dict(saved["tower"])
        self.average.resume(saved["average"], saved["steps"])
        for engine, state in zip(self.engines, saved["engines"], strict=True):
            engine.load_state_dict(state)
        self.seconds, self.examples = saved["seconds"], saved["examples"]
        self.start = saved["start"]

    def step(self, share: float) -> float:
        """Take one step at a share of the time; return the loss."""
        for engine, peak in zip(self.engines, self.peaks, strict=True):
            for group in engine.param_groups:
                group["lr"] = peak * self.settings.speed * rate_at(share)
        mel, logits = batch(self.mixer, self.settings.frames, self.rng)
        self.tower.train()
        target = (logits - self.mu) / self.sigma
        loss = distillation_loss(self.tower(mel), target, self.text)
        self.tower.zero_grad(set_to_none=True)
        loss.backward()
        share_gradients(self.tower)
        for engine in self.engines:
            engine.step()
        self.average.update(self.tower)
        self.examples += len(mel) * distributed.get_world_size()
        self.steps += 1
        return float(loss.detach())

    def report(self, held_out: HeldOut, loss: float) -> None:
        """Add a line to the curve and write the checkpoint."""
        scores = held_out.measure(self.average.tower)
        figures = {
            "seconds": round(self.seconds),
            "steps": self.steps,
            "examples": self.examples,
            "loss": f"{loss:.4f}",
            "cosine": f"{scores.cosine:.4f}",
            "noisy_cosine": f"{scores.noisy_cosine:.4f}",
            "clean": f"{scores.clean:.4f}",
            **{f"at_{snr:.0f}_db": f"{share:.4f}" for snr, share in scores.noisy.items()},
        }
        path = Path(self.settings.curve)
        new = not path.exists()
        with open(path, "a", newline="") as handle:
            writer = csv.DictWriter(handle, list(figures))
            if new:
                writer.writeheader()
            writer.writerow(figures)
        print(*figures.values(), flush=True)
        self.save()

    def save(self) -> None:
        """Write the checkpoint to a temporary file, then move it into place."""
        path = Path(self.settings.checkpoint)
        state = {
            "tower": self.tower.state_dict(),
            "average": self.average.tower.state_dict(),
            "start": self.start,
            "engines": [engine.state_dict() for engine in self.engines],
            "shape": asdict(self.shape),
            "seconds": self.seconds,
            "examples": self.examples,
            "steps": self.steps,
        }
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)


def _recipe(settings: argparse.Namespace) -> Recipe:
    """Return the mixing recipe of the command line."""
    return Recipe(noise_margin_db=settings.noise_margin_db)


def shared_clock(seconds: float) -> float:
    """Return process 0's reading, so that all processes stop together."""
    reading = torch.tensor([seconds])
    distributed.broadcast(reading, src=0)
    return float(reading)


def train(rank: int, settings: argparse.Namespace) -> None:
    """Train, as process `rank`, until the time is up."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=settings.meeting, rank=rank, world_size=settings.workers
    )
    run = Run(settings, rank)
    held_out = read_held_out(run.mu, run.sigma)
    if rank == 0 and run.steps == 0:
        run.report(held_out, float("nan"))
    distributed.barrier()
    before, began, total = run.seconds, time.monotonic(), settings.minutes * 60
    saved = reported = began
    losses: list[float] = []
    while (seconds := shared_clock(before + time.monotonic() - began)) < total:
        run.seconds = seconds
        losses.append(run.step(seconds / total))
        now = time.monotonic()
        if rank == 0 and now - reported > settings.report_seconds:
            run.report(held_out, float(np.mean(losses)))
            saved, reported, losses = time.monotonic(), time.monotonic(), []
        elif rank == 0 and now - saved > SAVE_SECONDS:
            run.save()
            saved = now
    if rank == 0:
        run.report(held_out, float(np.mean(losses or [np.nan])))
    distributed.destroy_process_group()


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=40.0)
    parser.add_argument("--frames", type=int, default=6_000, help="log-mel frames per batch")
    parser.add_argument("--speed", type=float, default=0.12, help="factor on the learning rates")
    parser.add_argument("--average", type=float, default=0.99)
    parser.add_argument("--start", default=str(FIRST_EDITION), help="first edition's audio.onnx")
    parser.add_argument("--noise-margin-db", type=float, default=Recipe.noise_margin_db)
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--report-seconds", type=float, default=360.0)
    parser.add_argument("--checkpoint", default=str(CHECKPOINT))
    parser.add_argument("--curve", default=str(CURVE))
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings.meeting = f"file://{folder}/meeting"
        multiprocessing.spawn(train, (settings,), nprocs=settings.workers)


if __name__ == "__main__":
    main()
