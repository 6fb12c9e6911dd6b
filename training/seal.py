"""Write the checksums that `mini` verifies on loading: `python -m training.seal`.

`--home FOLDER` seals another build. A folder without a text tower gets that of the model that
ships, so a new audio tower becomes a complete model.
"""

import argparse
import shutil
from pathlib import Path

from driftscore.backbones.mini import HOME, MANIFEST
from driftscore.storage.files import replacing, sha256

TEXT = ("text.onnx", "tokenizer.json")
FILES = ("audio.onnx", "pool.onnx", *TEXT)


def main() -> None:
    """Write the manifest and print the size of the model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    parser.add_argument("--home", type=Path, default=HOME, help="folder of the model")
    home = parser.parse_args().home
    for name in TEXT:
        if not (home / name).exists():
            shutil.copy(HOME / name, home / name)
    lines = ["# Checksums of the embedded model's files: made by `python -m training.seal`.", ""]
    lines += ["[sha256]", *(f'"{name}" = "{sha256(home / name)}"' for name in FILES)]
    with replacing(home / MANIFEST) as partial:
        partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
    size = sum((home / name).stat().st_size for name in (*FILES, MANIFEST))
    print(f"{home}: {size / 1e6:.2f} MB in total")


if __name__ == "__main__":
    main()
