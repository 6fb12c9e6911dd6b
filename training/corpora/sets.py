"""Label sets to choose on and to report on, and noise to choose in, for the grids of this folder.

Each set is a folder of one's own (`python -m training.sets` writes them) that the lab reads as it
reads those of any user. Settings are chosen on `*_choose` in `ambient`, recordings of `train` that
are in no calibration; results are reported on the others in `recorded`, the 15 test noises.

The labels of these sets have other words than the classes that the manifest says are audible in a
noise, so `audible` adds them.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from driftscore.lab.corpora.about import About, Clip
from driftscore.lab.corpora.datasets import folder
from driftscore.lab.corpora.folders import absent, root
from driftscore.lab.corpora.noises.protocol import NoiseRecording
from driftscore.text.prompts import words
from training.collect import WORK, is_free
from training.corpora import recorded, shared_events
from training.corpora.recordings import AUDIBLE, MANIFEST, manifest, shared_audio, split_labels

ALSO = {
    "airplane": ("air conditioner", "stove fan"),
    "chirping_birds": ("bird",),
    "car_horn": ("car horn",),
    "dog": ("dog bark",),
    "drinking_sipping": ("cutlery", "plates", "speech"),
    "engine": ("engine idling", "drilling", "jackhammer"),
    "glass_breaking": ("plates", "cutlery", "clean dishes"),
    "hand_saw": ("drilling", "jackhammer"),
    "hen": ("chicken",),
    "keyboard_typing": ("keyboard", "speech", "phone ringing"),
    "laughing": ("laughter", "speech", "children playing", "street music"),
    "pouring_water": ("water flowing", "clean dishes", "boiling water"),
    "rain": ("water flowing", "frying pan"),
    "sea_waves": ("water flowing",),
    "vacuum_cleaner": ("air conditioner", "stove fan", "blender", "juicer"),
    "washing_machine": ("dishwasher", "air conditioner"),
}
"""What else may be audible where a class is, in the words of the other sets."""


def audible(classes: Iterable[str]) -> tuple[str, ...]:
    """Return classes that are audible in a noise, with the labels of other sets that mean them."""
    listed = tuple(classes)
    return (*listed, *(label for name in listed for label in ALSO.get(name, ())))


@dataclass(frozen=True)
class LabelledSet:
    """A folder of `sets/` in the training folder, one sub-folder per label.

    Of a set that has one part only, one half is tested (`half` 0) and the other has the examples:
    every second clip of a label.
    """

    path: str
    ABOUT: About
    half: int | None = None

    def default_home(self) -> Path:
        """Return the folder."""
        return WORK / "sets" / self.path

    def clips(self, home: Path) -> list[Clip]:
        """Return the clips sorted by label and name."""
        clips = folder.clips(home)
        if self.half is None:
            return clips
        seen = Counter[str]()
        chosen = []
        for clip in clips:
            if seen[clip.labels[0]] % 2 == self.half:
                chosen.append(clip)
            seen[clip.labels[0]] += 1
        return chosen

    labels = staticmethod(folder.labels)
    missing = staticmethod(folder.missing)


_URBAN = About(
    "UrbanSound8K, a fold",
    "https://urbansounddataset.weebly.com/urbansound8k.html",
    "CC BY-NC 3.0",
    "J. Salamon, C. Jacoby and J. P. Bello. A Dataset and Taxonomy for Urban Sound Research. "
    "ACM Multimedia, 2014.",
)
_KITCHEN = About(
    "Kitchen20, a part",
    "https://github.com/marc-moreaux/kitchen20",
    "Apache-2.0 by its repository; clips of Freesound without their own licences",
    "M. Moreaux et al. Benchmark for Kitchen20, a daily life dataset for audio-based human action "
    "recognition. CBMI, 2019.",
)
_OFFICE = About(
    "DCASE 2016 task 2, office sounds",
    "https://dcase.community/challenge2016/task-sound-event-detection-in-synthetic-audio",
    "not stated by its copy (Stevens05/SASED)",
    "DCASE 2016 challenge, task 2: sound event detection in synthetic audio.",
)
_ANIMALS = About(
    "Animals",
    "https://github.com/YashNita/Animal-Sound-Dataset",
    "not stated",
    "YashNita/Animal-Sound-Dataset.",
)
urban_choose, urban = LabelledSet("urban/fold3", _URBAN), LabelledSet("urban/fold2", _URBAN)
kitchen_choose = LabelledSet("kitchen/choose", _KITCHEN)
kitchen = LabelledSet("kitchen/report", _KITCHEN)
office, office_noisy = LabelledSet("office/clean", _OFFICE), LabelledSet("office/noisy", _OFFICE)
animals = LabelledSet("animals", _ANIMALS)
office_test, office_examples = (LabelledSet("office/clean", _OFFICE, half) for half in (0, 1))
animals_test, animals_examples = (LabelledSet("animals", _ANIMALS, half) for half in (0, 1))


@dataclass(frozen=True)
class Esc50Train:
    """The labelled clips of `train/esc50`.

    `reserved` are those that their licence keeps out of training and calibration.
    """

    reserved: bool
    ABOUT = About(
        "ESC-50, clips of train",
        "https://github.com/karoldvl/ESC-50",
        "stated per clip in manifest.csv",
        "K. J. Piczak. ESC: Dataset for Environmental Sound Classification. ACM Multimedia, 2015.",
    )
    default_home = staticmethod(shared_audio)
    labels = staticmethod(shared_events.labels)

    def clips(self, home: Path) -> list[Clip]:
        """Return the clips in the order of the manifest."""
        base = root(home, MANIFEST)
        listed = [row for row in manifest(base, "train") if row["label"]]
        return [
            Clip(base / row["file"], (words(row["label"]),), None, Path(row["file"]).stem)
            for row in listed
            if not (self.reserved and is_free(row))
        ]

    def missing(self, home: Path) -> list[str]:
        """Return everything that the folder lacks."""
        lacking = absent(root(home, MANIFEST), [MANIFEST])
        return lacking or [str(clip.path) for clip in self.clips(home) if not clip.path.exists()]


esc50_choose, esc50_train = Esc50Train(reserved=True), Esc50Train(reserved=False)


class RecordedNoise:
    """The 15 test noises, avoided by the labels of all sets that may be audible in them."""

    ABOUT = recorded.ABOUT
    default_home = staticmethod(shared_audio)
    missing = staticmethod(recorded.missing)

    @staticmethod
    def recordings(home: Path) -> list[NoiseRecording]:
        """Return the recordings in the order of the manifest."""
        return [
            NoiseRecording(r.file, r.id, r.environment, audible(r.avoid))
            for r in recorded.recordings(home)
        ]


class AmbientNoise:
    """Places among the recordings of `train` that are in no calibration: noise to choose in."""

    ABOUT = recorded.ABOUT
    default_home = staticmethod(shared_audio)

    @staticmethod
    def recordings(home: Path) -> list[NoiseRecording]:
        """Return the recordings in the order of the manifest."""
        base = root(home, MANIFEST)
        return [
            NoiseRecording(
                str(base / row["file"]),
                row["file"],
                row["environment"].replace("-", " "),
                audible(split_labels(AUDIBLE[row["environment"]])),
            )
            for row in manifest(base, "train")
            if row["environment"] in AUDIBLE and not is_free(row)
        ]

    @staticmethod
    def missing(home: Path) -> list[str]:
        """Return everything that the folder lacks."""
        return absent(root(home, MANIFEST), [MANIFEST])


noise, ambient = RecordedNoise, AmbientNoise
