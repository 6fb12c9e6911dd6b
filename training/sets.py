"""Write the labelled sets that rules are chosen and reported on: `python -m training.sets`.

Written to `sets/` of the training folder (`$DRIFTSCORE_TRAINING`), one folder per label. They are
measured on, never trained on and never copied into the project:

- `urban/fold3`, `urban/fold2`, `kitchen/choose`, `kitchen/report`: by tools of the shared folder
- `office/clean` and `office/noisy`: sounds of DCASE 2016 task 2, alone and in real office noise at
  -6, 0 and +6 dB (Stevens05/SASED)
- `animals`: ten animals, equal files once (YashNita/Animal-Sound-Dataset)

A set that is there already is left alone. Snapshots are read from `repositories/owner+name` of the
training folder, and cloned from GitHub if they are not there.
"""

import re
import subprocess
import sys
from pathlib import Path

from training.collect import SHARED, WORK, Source, repository, repository_files

OFFICE = {
    "clearthroat": "clearing_throat", "cough": "coughing", "doorslam": "door_slam",
    "drawer": "drawer", "keyboard": "keyboard", "keys": "keys", "keysDrop": "keys",
    "knock": "door_knock", "laughter": "laughter", "pageturn": "page_turning",
    "phone": "phone_ringing", "speech": "speech",
}  # fmt: skip
ANIMALS = {
    "Kedi": "cat", "Kopek": "dog", "Kus": "bird", "Inek": "cow", "Aslan": "lion", "Koyun": "sheep",
    "Kurbaga": "frog", "Tavuk": "chicken", "Esek": "donkey", "Maymun": "monkey",
}  # fmt: skip
SOURCES = {
    "office": Source(
        "Stevens05/SASED",
        "66b1f3d1e2457689367a843b5f2566ecfb58ada8",
        "",
        keep=("data/train/sound/", "data/val/segments/"),
    ),
    "animals": Source(
        "YashNita/Animal-Sound-Dataset", "574b5e2d9b071f142b464bb7b43d6a736ebb0dac", ""
    ),
}
TOOLS = {"urban": "Alejandro-131004/AC-II", "kitchen": "marc-moreaux/kitchen20"}
_CLEAN = re.compile(r"data/train/sound/([a-zA-Z]+)\d+\.wav")
_NOISY = re.compile(r"data/val/segments/dev_1_ebr_(-?\d+)_.*_([a-zA-Z]+)_\d+\.wav")


def office_file(path: str) -> str:
    """Return where a sound of the office set is written; empty for a file that is not one."""
    if match := _CLEAN.fullmatch(path):
        return f"clean/{OFFICE[match[1]]}/{Path(path).name}"
    if match := _NOISY.fullmatch(path):
        return f"noisy/{OFFICE[match[2]]}/{Path(path).name}"
    return ""


def animal_file(path: str) -> str:
    """Return where a sound of the animal set is written; empty for a file that is not one."""
    folder, _, name = path.partition("/")
    label = ANIMALS.get(folder.partition("-")[0])
    return f"{label}/{name.replace('/', '_')}" if label else ""


def main() -> None:
    """Write what is missing."""
    sets = WORK / "sets"
    for name, source in TOOLS.items():
        if not (sets / name).exists():
            tool = SHARED / "tools" / f"{name}.py"
            subprocess.run([sys.executable, tool, repository(source), sets / name], check=True)
    for name, target in (("office", office_file), ("animals", animal_file)):
        contents: set[bytes] = set()
        if (sets / name).exists():
            continue
        for path, content in repository_files(SOURCES[name]):
            if (file := target(path)) and content not in contents:
                contents.add(content)
                (sets / name / file).parent.mkdir(parents=True, exist_ok=True)
                (sets / name / file).write_bytes(content)
        print(f"{name}: {len(contents)} clips")


if __name__ == "__main__":
    main()
