"""Choose the threshold of the speech guard (`live/speech.py`) and measure it on other voices.

    python -m training.speech_guard                  # choose and report, about ten minutes
    python -m training.speech_guard --threshold -1.5 # report on one threshold only
    python -m training.speech_guard --words          # without the voice detector (extra `privacy`)

Speech is taken from packages of Debian that `mini` was not trained on (downloaded with apt-get and
unpacked, never installed), and from the synthesisers espeak-ng and flite where they are installed.
A clip is 5 s of recorded noise with half a second to two seconds of speech at a random place; every
second prompt is spoken across a simulated room (3.6 m away, 0.8 s of reverberation).
The SNR is the power of the speech over that of the noise. The part that chooses and the part that
reports share no voice, no text, no noise recording and no clip:

    choose   a telephone voice (fr) and four synthetic ones; `train/ambient`, `train/esc50`
    report   two telephone voices (it, es) and three synthetic ones; `noise/` without the cafe,
             whose guests talk; `events/`

Four more telephone voices (asterisk-core-sounds) were used until the fifth edition of `mini`, and
were in its pool for a short while by mistake: 0.6 % of 31,000 examples.

A part of a prompt in which nobody talks (less than a tenth of the power of the prompt) is drawn
again, and files of beeps are left out. The threshold is the lowest one (in steps of 0.1) at which
on the part that chooses at most 25 % of the other sounds are withheld: what it costs is bounded,
and as much speech as possible is found. Words alone are asked for 99 % of all spoken clips at -5 dB
and above, whatever it costs. Intervals are Wilson's, 95 %. The scores are kept in
`speech_scores_*.json` of the training folder.
"""

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import soundfile

from driftscore import Classifier
from driftscore.audio.noise import excerpt
from driftscore.audio.recordings import Audio, Samples, read
from driftscore.decisions.review import wilson
from driftscore.lab.mixing.rooms import box_response, convolved
from driftscore.live.speech import SpeechGuard
from training.collect import RATE, SHARED, WORK

CLIP_S, SHORTEST_S, LONGEST_S, ROOM_S = 5, 0.5, 2.0, 0.8
CLEAN = 60.0
"""The SNR of clips without noise."""
SNRS_DB = (CLEAN, 10.0, 5.0, 0.0, -5.0)
DOWN_TO_DB, LOUD_DB = -5.0, 10.0
MAX_OTHERS, WANTED_WORDS = 0.25, 0.99
STEPS = tuple(round(0.1 * n, 1) for n in range(-60, 41))
PER_VOICE, OTHERS = 20, 300
VOICED = ("breathing", "coughing", "crying baby", "laughing", "sneezing", "snoring")
"""Classes of ESC-50 with sounds of people; they are counted apart."""
TALKING = ("cafe", "carousel", "church", "laughing", "market", "office", "people", "restaurant",
           "shopping", "station", "temple", "village")  # fmt: skip
"""Words in the manifest for places where people may talk: these are no noise without speech."""
PLACES = 100
MIN_BYTES = 1000
"""Some files of a package are empty."""
NO_SPEECH = ("silence", "beep", "tone", "monkeys", "confbridge-join", "confbridge-leave")
"""Parts of the names of files without speech."""
PAUSE = 0.1
"""A part of a prompt with less of its power than this holds no speech."""
TEXTS = {
    "choose": (
        "Good morning, is the shop open on Sunday?",
        "The train to the coast leaves at half past nine.",
        "Please close the window, it is getting cold in here.",
        "I have left my keys at home again.",
        "We should paint the fence before the summer.",
    ),
    "report": (
        "Have you seen the letter that came this week?",
        "My brother is repairing the roof of the barn.",
        "Turn left at the bridge and follow the river.",
        "She bought bread, butter and a bag of apples.",
        "Nobody told me that the meeting was moved.",
    ),
}


@dataclass(frozen=True)
class Part:
    """Voices, noises and other sounds of one part of the data."""

    packages: tuple[str, ...]
    synthetic: tuple[str, ...]
    noises: tuple[str, ...]
    others: str


PARTS = {
    "choose": Part(
        ("asterisk-prompt-fr-armelle",),
        ("espeak-ng:en-us+m3", "espeak-ng:en-gb+f4", "espeak-ng:de+f2", "espeak-ng:pl+m5"),
        ("train/ambient",),
        "train/esc50",
    ),
    "report": Part(
        ("asterisk-prompt-it-menardi-wav", "asterisk-prompt-es-co"),
        ("flite:rms", "flite:slt", "flite:awb"),
        ("noise/", "noise_unclear_licence/"),
        "events/",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Scored:
    """The highest score of speech in one clip, and what the clip is."""

    kind: str
    snr_db: float
    score: float
    room: bool = False


def main() -> int:
    """Choose a threshold, unless one is given, and report on the other part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--threshold", type=float, help="report on this one, choose nothing")
    parser.add_argument("--clips", type=int, default=PER_VOICE, help="per voice and SNR")
    parser.add_argument("--words", action="store_true", help="without the voice detector")
    given = parser.parse_args()
    guard = SpeechGuard(Classifier(["siren", "dog bark"]), voices=not given.words)
    threshold = given.threshold
    if threshold is None:
        threshold = choose(*scores(guard, "choose", given.clips), words=given.words)
    spoken, others = scores(guard, "report", given.clips)
    report(spoken, others, threshold)
    print(f"threshold {threshold:g}; the default is {guard.threshold:g}")
    return 0


def choose(spoken: Sequence[Scored], others: Sequence[Scored], *, words: bool) -> float:
    """Print what each threshold gives on the first part; return the chosen one."""
    heeded = [clip for clip in spoken if clip.snr_db >= DOWN_TO_DB]
    every = np.array([clip.score for clip in heeded])
    loud = np.array([clip.score for clip in heeded if clip.snr_db >= LOUD_DB])
    room = np.array([clip.score for clip in heeded if clip.room])
    plain = np.array([clip.score for clip in others if clip.kind == "other sounds"])
    chosen = STEPS[0] if words else STEPS[-1]
    print(f"choose: {len(every)} spoken clips at {DOWN_TO_DB:g} dB and above, {len(plain)} others")
    for step in STEPS if words else reversed(STEPS):
        shares = [float((part >= step).mean()) for part in (every, loud, room, plain)]
        if shares[0] >= WANTED_WORDS if words else shares[3] <= MAX_OTHERS:
            chosen = step
        found = ", ".join(f"{share:.1%}" for share in shares)
        print(f"  {step:.1f}: found of all, loud, in a room, and others withheld: {found}")
    return chosen


def report(spoken: Sequence[Scored], others: Sequence[Scored], threshold: float) -> None:
    """Print what a threshold gives on the second part, as a table of Markdown."""
    print("| clips | SNR | withheld | 95 % interval | clips |\n| --- | --- | --- | --- | --- |")
    for snr_db in SNRS_DB:
        name = "none" if snr_db == CLEAN else f"{snr_db:g} dB"
        _line("speech", name, [c for c in spoken if c.snr_db == snr_db], threshold)
    heeded, above = [c for c in spoken if c.snr_db >= DOWN_TO_DB], f"{DOWN_TO_DB:g} dB and above"
    for kind in dict.fromkeys(clip.kind for clip in heeded):
        _line(f"speech, {kind}", above, [c for c in heeded if c.kind == kind], threshold)
    for room in (False, True):
        name = "across a room" if room else "close by"
        _line(f"speech {name}", above, [c for c in heeded if c.room == room], threshold)
    for snr_db in SNRS_DB:
        across = [c for c in spoken if c.room and c.snr_db == snr_db]
        _line("speech across a room", f"{snr_db:g} dB", across, threshold)
    for kind in dict.fromkeys(clip.kind for clip in others):
        _line(kind, "", [clip for clip in others if clip.kind == kind], threshold)


def _line(kind: str, snr: str, clips: Sequence[Scored], threshold: float) -> None:
    found = sum(clip.score >= threshold for clip in clips)
    low, high = wilson(found, len(clips))
    share = found / len(clips)
    print(f"| {kind} | {snr} | {share:.1%} | {low:.1%} to {high:.1%} | {len(clips)} |")


def scores(guard: SpeechGuard, name: str, clips: int) -> tuple[list[Scored], list[Scored]]:
    """Return the scores of the spoken clips and of the other sounds of a part."""
    part, rng = PARTS[name], np.random.default_rng(len(name))
    noises = [read(SHARED / "audio" / file, rate=RATE) for file, _ in _noises(part)]
    response, spoken = box_response(RATE, ROOM_S), []
    for kind, prompts in _voices(part, name):
        picked = rng.permutation(len(prompts))[:clips]
        _say(f"{name}: {kind}, {len(picked)} prompts")
        for place, number in enumerate(picked.tolist()):
            room = place % 2 == 1
            for snr_db in SNRS_DB:
                speech = in_room(prompts[number], response) if room else prompts[number]
                clip = spoken_clip(speech, noises, snr_db, rng)
                spoken.append(Scored(kind, snr_db, guard.score(clip), room))
    rows = [row for row in _rows() if row["file"].startswith(part.others)]
    _say(f"{name}: other sounds")
    others = [
        Scored("places without speech", CLEAN, guard.score(_place(noises, rng)))
        for _ in range(PLACES)
    ]
    for number in rng.permutation(len(rows))[:OTHERS].tolist():
        voiced = rows[number]["label"] in VOICED
        kind = "coughs, laughs, cries and the like" if voiced else "other sounds"
        clip = read(SHARED / "audio" / rows[number]["file"], rate=RATE)
        others.append(Scored(kind, CLEAN, guard.score(clip)))
    kept = WORK / f"speech_scores_{name}.json"
    kept.write_text(json.dumps([asdict(clip) for clip in (*spoken, *others)], indent=0))
    return spoken, others


def in_room(prompt: Samples, response: Samples) -> Samples:
    """Return a prompt as it sounds across a room."""
    return convolved(prompt.astype(np.float64), response)[: len(prompt)].astype(np.float32)


def spoken_clip(
    prompt: Samples, noises: Sequence[Audio], snr_db: float, rng: np.random.Generator
) -> Audio:
    """Return a clip of noise with a part of a prompt at a random place."""
    most = min(len(prompt), round(rng.uniform(SHORTEST_S, LONGEST_S) * RATE))
    speech = excerpt(prompt, most, rng)
    while _power(speech) < PAUSE * _power(prompt):
        speech = excerpt(prompt, most, rng)
    clip = _place(noises, rng).samples.astype(np.float64)
    ratio = _power(speech) / _power(clip) / 10 ** (snr_db / 10)
    clip *= np.sqrt(ratio) if snr_db < CLEAN else 0.0
    at = int(rng.integers(len(clip) - len(speech) + 1))
    clip[at : at + len(speech)] += speech
    return Audio((0.5 * clip / np.abs(clip).max()).astype(np.float32), RATE)


def _place(noises: Sequence[Audio], rng: np.random.Generator) -> Audio:
    """Return five seconds of a noise recording that are not silent."""
    while True:
        chosen = noises[int(rng.integers(len(noises)))].samples
        found = excerpt(chosen, CLIP_S * RATE, rng)
        if _power(found) > 0:
            return Audio(found, RATE)


def _power(samples: Samples) -> float:
    """Return the mean power of what is not digital silence."""
    active = samples[samples != 0].astype(np.float64)
    return float(np.mean(active**2)) if len(active) else 0.0


def _rows() -> list[dict[str, str]]:
    with open(SHARED / "audio" / "manifest.csv", newline="") as handle:
        return list(csv.DictReader(handle))


def _noises(part: Part) -> Iterator[tuple[str, str]]:
    """Yield the noise recordings of a part in which nobody talks, as far as their names say."""
    for row in _rows():
        about = f"{row['file']} {row['label']} {row['environment']} {row['avoid_classes']}".lower()
        if row["file"].startswith(part.noises) and not any(word in about for word in TALKING):
            yield row["file"], row["environment"]


def _voices(part: Part, name: str) -> Iterator[tuple[str, list[Samples]]]:
    """Yield each voice with its prompts."""
    for package in part.packages:
        yield package, [p for p in map(_decoded, _unpacked(package)) if len(p) >= SHORTEST_S * RATE]
    for voice in part.synthetic:
        program, _, speaker = voice.partition(":")
        if shutil.which(program) is None:
            _say(f"{program.upper()} IS MISSING: the voice {speaker} is left out")
            continue
        yield voice, [_synthesised(program, speaker, text) for text in TEXTS[name]] * 8


def _unpacked(package: str) -> list[Path]:
    """Return the prompts of a package, which is downloaded first if necessary."""
    debs, home = WORK / "debs", WORK / "speech" / package
    if not home.exists():
        for folder in (debs, home.parent):
            folder.mkdir(parents=True, exist_ok=True)
        if not list(debs.glob(f"{package}_*.deb")):
            subprocess.run(["apt-get", "download", "-q", package], cwd=debs, check=True)
        subprocess.run(["dpkg", "-x", max(debs.glob(f"{package}_*.deb")), home], check=True)
    return sorted(
        path
        for path in home.rglob("*")
        if path.suffix in (".wav", ".gsm")
        and not any(word in str(path) for word in NO_SPEECH)
        and path.stat().st_size > MIN_BYTES
    )


def _decoded(path: Path) -> Samples:
    """Return a prompt at the rate of the model; gsm files have no header."""
    if path.suffix == ".gsm":
        with open(path, "rb") as file:
            samples, rate = soundfile.read(
                file, format="RAW", subtype="GSM610", samplerate=8000, channels=1, dtype="float32"
            )
        return read(Audio(samples, rate), rate=RATE).samples
    return read(path, rate=RATE).samples


def _synthesised(program: str, speaker: str, text: str) -> Samples:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "spoken.wav"
        flags = {"espeak-ng": ["-v", speaker, "-w", out, text],
                 "flite": ["-voice", speaker, "-t", text, "-o", out]}  # fmt: skip
        subprocess.run([program, *flags[program]], check=True, stdout=subprocess.DEVNULL)
        return read(out, rate=RATE).samples


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
