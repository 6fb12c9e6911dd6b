"""Train the `mini` audio tower: `python -m training.audio_tower`.

The student (`training.audio_net`) learns, from examples mixed on the fly (`training.mixtures`), the
logits that the teacher, mn04, gives to the same waveform, as z = (logit - mu) / sigma:

    loss = 1 - cos(student, z) + 0.3 * mean((student - z)^2) + 0.3 * KL(q(z) || q(student))

where q(.) = softmax(25 * cosine to text rows) is the choice among the names of AudioSet's, FSD50K's
and VGGSound's classes in tag space, because the tower is used to choose among labels. A quarter of
the same loss, without the squares, is added for each of two windows of each longer example: the
pooling of a few frames against the teacher's tags of these frames. The frames and the last map of
each stage must be the teacher's, every channel standardised by its mean and deviation:

    loss += 1 - cos(frame_t, teacher_t) + 0.1 * mean((frame_t - teacher_t)^2)
    loss += 0.25 * mean((map_s - teacher_s)^2)                                    for each stage s

Where the teacher got the clean part alone, this holds for the last stage and the frames only: the
first stages cannot remove noise.

A tower that starts from random weights learns its stages side by side at first (`--stages N`
examples): each stage gets the teacher's map before it, so that none waits for the ones before.

The learning rate rises, then stays level until the run is stopped (SIGTERM or SIGINT writes a
checkpoint). `--decay N` continues a copy of the run with a rate that falls to zero over N examples,
and ends; the level checkpoint stays as it is and can be trained further. Without a checkpoint
the run starts from random weights (`--stages`) or an exported tower (`--start`). All state is in
the training folder: `level.pt` and `decay.pt` (with the one before, `*.previous.pt`), `log.jsonl`
(loss and speed) and `curve.jsonl` (validation).
"""

import argparse
import copy
import json
import math
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from training import front_ends
from training.audio_net import CHANNELS, AudioTower, load_exported
from training.collect import WORK
from training.mixtures import Bank, Batch, Mixer, Recipe
from training.muon import Muon
from training.product import load_space
from training.teacher_frames import MAP_CHANNELS
from training.validation import read_sets

LEVEL, DECAY = WORK / "level.pt", WORK / "decay.pt"
LOG, CURVE = WORK / "log.jsonl", WORK / "curve.jsonl"
SHARPNESS = 25.0
WINDOW_WEIGHT = 0.25
FRAME_WEIGHT = 1.0
MAP_WEIGHT = 0.25
MAX_GRADIENT = 100.0
"""Norm above which a gradient is scaled down; an ordinary one is below 10."""
_TAUGHT = ("first", "second", "third", "fourth", "frames")
SEED = 3
SAVE_SECONDS = 600.0
LOG_SECONDS = 60.0
_MEASURED = 6
"""Batches that the means and deviations of the teacher's maps are taken from."""


def distillation_loss(
    student: Tensor, target: Tensor, text: Tensor, *, squares: float = 0.3
) -> Tensor:
    """Return the loss of the module's docstring for each example."""
    mine, theirs = functional.normalize(student, dim=1), functional.normalize(target, dim=1)
    choice = functional.kl_div(
        functional.log_softmax(SHARPNESS * mine @ text.T, dim=1),
        functional.log_softmax(SHARPNESS * theirs @ text.T, dim=1),
        reduction="none",
        log_target=True,
    ).sum(dim=1)
    errors = (student - target).square().mean(dim=1)
    return 1 - (mine * theirs).sum(dim=1) + squares * errors + 0.3 * choice


class Targets(nn.Module):
    """The means and deviations of the channels of the teacher's maps and frames."""

    def __init__(self) -> None:
        super().__init__()
        for name, channels in zip(_TAUGHT, (*MAP_CHANNELS, CHANNELS), strict=True):
            self.register_buffer(f"{name}_mean", torch.zeros(channels))
            self.register_buffer(f"{name}_deviation", torch.ones(channels))

    def measure(self, batches: list[Batch]) -> None:
        """Take the statistics of some batches."""
        for number, name in enumerate(_TAUGHT):
            rows = [(*batch.maps, batch.frames)[number].float() for batch in batches]
            channels = torch.cat([part.transpose(0, 1).flatten(1) for part in rows], dim=1)
            deviation, mean = torch.std_mean(channels, dim=1)
            self.get_buffer(f"{name}_mean").copy_(mean)
            floor = 0.1 * deviation.median()
            self.get_buffer(f"{name}_deviation").copy_(deviation.clamp(min=float(floor)))

    def standardised(self, name: str, values: Tensor) -> Tensor:
        """Return maps or frames, (examples, channels, ...), standardised."""
        shape = (1, -1) + (1,) * (values.ndim - 2)
        mean, deviation = self.get_buffer(f"{name}_mean"), self.get_buffer(f"{name}_deviation")
        return (values.float() - mean.view(shape)) / deviation.view(shape)

    def maps(self, batch: Batch) -> list[Tensor]:
        """Return the teacher's maps of a batch, standardised."""
        return [
            self.standardised(name, taught).contiguous(memory_format=torch.channels_last)
            for name, taught in zip(_TAUGHT, batch.maps, strict=False)
        ]

    def loss(
        self, features: Tensor, maps: list[Tensor], taught: list[Tensor], batch: Batch, known: int
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of frames, and that of each stage.

        From stage `known` on, examples count whose teacher got the clean part alone.
        """
        errors = []
        for number, (own, target) in enumerate(zip(maps, taught, strict=True)):
            losses = (own.float() - target).square().mean(dim=(1, 2, 3))
            counted = torch.ones_like(losses) if number >= known else batch.same.float()
            errors.append((losses * counted).sum() / counted.sum().clamp(min=1.0))
        mine, theirs = (self.standardised("frames", rows) for rows in (features, batch.frames))
        apart = 1 - functional.cosine_similarity(mine, theirs, dim=1)
        return apart.mean() + 0.1 * (mine - theirs).square().mean(), torch.stack(errors)


def optimisers(tower: AudioTower) -> list[torch.optim.Optimizer]:
    """Return Muon for the convolutions that mix channels and AdamW for the rest."""
    mixing = [p for p in tower.parameters() if p.ndim == 4 and p.shape[1] > 1]
    inner = {id(p) for p in mixing}
    rest = [p for p in tower.parameters() if id(p) not in inner]
    return [Muon(mixing, lr=0.02), torch.optim.AdamW(rest, lr=2e-3, weight_decay=0.02)]


class Average:
    """A moving average of a network's weights and running statistics."""

    def __init__(self, tower: AudioTower, decay: float) -> None:
        self.tower, self.decay, self.steps = copy.deepcopy(tower), decay, 0

    @torch.no_grad()
    def update(self, tower: AudioTower) -> None:
        """Move towards the network; quickly at first."""
        self.steps += 1
        share = 1 - min(self.decay, self.steps / (self.steps + 10))
        pairs = zip(self.tower.state_dict().values(), tower.state_dict().values(), strict=True)
        for mine, new in pairs:
            if mine.is_floating_point():
                mine.lerp_(new, share)


class Run:
    """The state of a training run and its steps."""

    def __init__(self, settings: argparse.Namespace) -> None:
        self.settings = settings
        self.path = DECAY if settings.decay else LEVEL
        self.steps, self.examples, self.decay_start = 0, 0, 0
        space = load_space()
        self.mu, self.sigma = torch.from_numpy(space.mu), torch.from_numpy(space.sigma)
        self.sets, self.text = read_sets(self.mu, self.sigma)
        self.mixer = Mixer(Bank(), Recipe(), SEED)
        torch.manual_seed(SEED)
        self.tower = AudioTower().to(memory_format=torch.channels_last)
        self.targets = Targets()
        saved = self._saved()
        if saved is None:
            self.targets.measure([self.mixer[number] for number in range(_MEASURED)])
            if settings.start:
                load_exported(self.tower, settings.start, self.mixer.first_mels())
        self.engines = optimisers(self.tower)
        self.peaks = [engine.param_groups[0]["lr"] for engine in self.engines]
        self.average = Average(self.tower, settings.average)
        if saved is not None:
            self._resume(saved)
        self.validated = self.examples

    def _saved(self) -> dict[str, Any] | None:
        """Return the checkpoint to continue, if there is one; a decay begins with the level one."""
        for path in (self.path, LEVEL):
            if path.exists():
                saved: dict[str, Any] = torch.load(path, weights_only=True)
                if path != self.path:
                    saved["decay_start"] = saved["examples"]
                return saved
        return None

    def _resume(self, saved: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self.tower.load_state_dict(saved["tower"])
        self.targets.load_state_dict(saved["targets"])
        self.average.tower.load_state_dict(saved["average"])
        for engine, state in zip(self.engines, saved["engines"], strict=True):
            engine.load_state_dict(state)
        self.steps = self.average.steps = saved["steps"]
        self.examples, self.decay_start = saved["examples"], saved["decay_start"]

    def save(self) -> None:
        """Write the checkpoint to a temporary file, move it into place, keep the one before."""
        state = {
            "tower": self.tower.state_dict(),
            "targets": self.targets.state_dict(),
            "average": self.average.tower.state_dict(),
            "engines": [engine.state_dict() for engine in self.engines],
            "steps": self.steps,
            "examples": self.examples,
            "decay_start": self.decay_start,
        }
        partial = self.path.with_suffix(".new")
        torch.save(state, partial)
        if self.path.exists():
            self.path.replace(self.path.with_suffix(".previous.pt"))
        partial.replace(self.path)

    def batches(self) -> Iterator[Batch]:
        """Return the batches from the present step on, made by other processes."""
        return iter(
            DataLoader(
                self.mixer,
                batch_size=None,
                sampler=range(self.steps, 1 << 40),
                num_workers=self.settings.workers,
                prefetch_factor=4,
                worker_init_fn=_begin_worker,
            )
        )

    def rate(self) -> float:
        """Return the factor on the learning rates: rise, level, and in a decay the fall to 0."""
        rise = min(1.0, (self.examples + 1) / self.settings.warm_up)
        if not self.settings.decay:
            return rise
        passed = (self.examples - self.decay_start) / self.settings.decay
        return rise * max(0.0, 1.0 - math.sqrt(passed))

    def step(self, batch: Batch) -> list[float]:
        """Take one step; return the loss on examples, windows, frames and maps of each size."""
        for engine, peak in zip(self.engines, self.peaks, strict=True):
            for group in engine.param_groups:
                group["lr"] = peak * self.settings.speed * self.rate()
        self.steps += 1
        if not all(part.isfinite().all() for part in (batch.log_mel, batch.logits, batch.frames)):
            print(f"batch {self.steps - 1} has values that are not finite: left out", flush=True)
            return []
        self.tower.train()
        log_mel = batch.log_mel.contiguous(memory_format=torch.channels_last)
        apart, taught = self.examples < self.settings.stages, self.targets.maps(batch)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.settings.bfloat16):
            features, maps = self.tower.features_and_maps(log_mel, taught if apart else None)
        features = features.float()
        known = 1 if apart else len(maps) - 1
        frames, sizes = self.targets.loss(features, maps, taught, batch, known)
        if apart:
            features = batch.frames
        loss = self._loss(self.tower.pool(features), batch.logits).mean()
        total, window_losses = loss + FRAME_WEIGHT * frames + MAP_WEIGHT * sizes.sum(), []
        for window in batch.windows:
            part = features[:, :, window.first : window.first + window.frames]
            losses = self._loss(self.tower.pool(part), window.logits, squares=0.0)
            mean = (losses * window.weight).sum() / window.weight.sum().clamp(min=1.0)
            total = total + WINDOW_WEIGHT * mean
            window_losses.append(float(mean.detach()))
        for engine in self.engines:
            engine.zero_grad(set_to_none=True)
        total.backward()
        size = nn.utils.clip_grad_norm_(self.tower.parameters(), MAX_GRADIENT)
        if not size.isfinite():
            print(f"batch {self.steps - 1} has a gradient that is not finite: left out", flush=True)
            return []
        for engine in self.engines:
            engine.step()
        self.average.update(self.tower)
        self.examples += len(batch.logits)
        window = float(np.mean(window_losses[1:] or [math.nan]))
        return [float(loss.detach()), window, float(frames.detach()), *sizes.detach().tolist()]

    def _loss(self, student: Tensor, logits: Tensor, *, squares: float = 0.3) -> Tensor:
        """Return the loss of each example."""
        target = (logits - self.mu) / self.sigma
        return distillation_loss(student, target, self.text, squares=squares)

    def validate(self) -> None:
        """Add the moving average's scores on the validation sets to the curve."""
        self.validated = self.examples
        scores = {name: part.measure(self.average.tower) for name, part in self.sets.items()}
        _append(CURVE, {"run": self.path.stem, "examples": self.examples, **scores})

    def over(self) -> bool:
        """Return whether a decay has reached its end."""
        passed = self.examples - self.decay_start
        return bool(self.settings.decay) and passed >= self.settings.decay


def _begin_worker(_: int) -> None:
    """Make a worker use one thread, and leave signals to the first process."""
    torch.set_num_threads(1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _append(path: Path, row: dict[str, Any]) -> None:
    """Append a line of JSON."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def train(run: Run) -> None:
    """Train until a signal arrives or a decay has ended."""
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: stopped.append(received))
    if run.steps == 0 and not run.settings.stages:
        run.validate()
    batches, losses = run.batches(), []
    saved = logged = time.monotonic()
    logged_examples = run.examples
    while not stopped and not run.over():
        if parts := run.step(next(batches)):
            losses.append(parts)
        now = time.monotonic()
        if now - logged > LOG_SECONDS and losses:
            whole, window, frame, *sizes = np.nanmean(np.array(losses), axis=0).tolist()
            line = {
                "time": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
                "run": run.path.stem,
                "steps": run.steps,
                "examples": run.examples,
                "per_hour": round(3600 * (run.examples - logged_examples) / (now - logged)),
                "rate": round(run.rate(), 4),
                "loss": round(whole, 4),
                "window_loss": round(window, 4),
                "frame_loss": round(frame, 4),
                "map_losses": [round(size, 3) for size in sizes],
            }
            _append(LOG, line)
            logged, logged_examples, losses = now, run.examples, []
        if now - saved > SAVE_SECONDS:
            run.save()
            saved = now
        if run.examples - run.validated >= run.settings.validate_every:
            run.validate()
    run.save()
    if run.over():
        run.validate()


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--decay", type=int, default=0, help="let the rate fall over N examples")
    parser.add_argument("--speed", type=float, default=0.2, help="factor on the learning rates")
    parser.add_argument("--warm-up", type=int, default=6_000, help="examples until the full rate")
    parser.add_argument("--average", type=float, default=0.999, help="decay of the average")
    parser.add_argument("--start", type=Path, help="exported model of this network to start with")
    parser.add_argument(
        "--stages", type=int, default=0, help="random weights; stages side by side for N examples"
    )
    parser.add_argument("--validate-every", type=int, default=40_000, help="examples")
    parser.add_argument("--workers", type=int, default=2, help="processes that make examples")
    parser.add_argument("--threads", type=int, default=2, help="threads of the student")
    parser.add_argument(
        "--bfloat16", action="store_true", help="convolutions in bfloat16 (processors with AVX512)"
    )
    settings = parser.parse_args()
    if not (settings.start or settings.stages or LEVEL.exists() or DECAY.exists()):
        parser.error(f"no checkpoint in {WORK}: give --start FOLDER or --stages N")
    torch.set_num_threads(settings.threads)
    front_ends.check()
    train(Run(settings))


if __name__ == "__main__":
    main()
