"""ESC-50: 2,000 environmental sounds of 5 s, 50 classes, 5 folds.

audio/{fold}-{source}-{take}-{target}.wav    44.1 kHz, padded with silence
meta/esc50.csv                               filename, fold, target, category, ...
"""

from driftscore.lab.corpora.about import About, Remote
from driftscore.lab.corpora.datasets.protocol import ClassTable

_COMMIT = "33c8ce9eb2cf0b1c2f8bcf322eb349b6be34dbb6"
ABOUT = About(
    title="ESC-50",
    page="https://github.com/karoldvl/ESC-50",
    licence="CC BY-NC 3.0 (single clips: see its LICENSE)",
    citation="K. J. Piczak. ESC: Dataset for Environmental Sound Classification. "
    "ACM Multimedia, 2015. doi:10.1145/2733373.2806390",
    files=(
        Remote(
            "ESC-50.zip",
            f"https://github.com/karoldvl/ESC-50/archive/{_COMMIT}.zip",
            "071b44018315e034b2c6e8064543d19c",
        ),
    ),
    clips=2_000,
)
_TABLE = ClassTable("meta/esc50.csv", "audio/{filename}", "filename", "category", "target")
clips, labels, missing = _TABLE.clips, _TABLE.labels, _TABLE.missing
