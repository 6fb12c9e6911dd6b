"""UrbanSound8K: 8,732 urban sounds of up to 4 s, 10 classes, 10 folds.

audio/fold{1..10}/{fsID}-{classID}-{occurrence}-{slice}.wav
metadata/UrbanSound8K.csv    slice_file_name, fsID, ..., fold, classID, class
"""

from driftscore.lab.corpora.about import About, zenodo
from driftscore.lab.corpora.datasets.protocol import ClassTable

ABOUT = About(
    title="UrbanSound8K",
    page="https://zenodo.org/records/1203745",
    licence="CC BY-NC 3.0",
    citation="J. Salamon, C. Jacoby and J. P. Bello. A Dataset and Taxonomy for Urban Sound "
    "Research. ACM Multimedia, 2014. doi:10.1145/2647868.2655045",
    files=zenodo(1203745, ("UrbanSound8K.tar.gz", "9aa69802bbf37fb986f71ec1483a196e")),
    clips=8_732,
)
_FILE = "audio/fold{fold}/{slice_file_name}"
_TABLE = ClassTable("metadata/UrbanSound8K.csv", _FILE, "slice_file_name", "class", "classID")
clips, labels, missing = _TABLE.clips, _TABLE.labels, _TABLE.missing
