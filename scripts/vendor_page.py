"""Fetch the JavaScript libraries of the page from npm: `python scripts/vendor_page.py`.

Each package is fetched by `npm pack` in the version given here and compared with its sha256. The
files that the page uses, and the licences, go to src/driftscore/service/static/vendor, with a list
of their checksums. They are committed, so that neither an installation nor a user needs this.

    --check   compare the committed files with their checksums; needs no network
    --axe     fetch axe-core, which the tests of the page use, to tests/page/vendor (not committed)
"""

import argparse
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
VENDOR = PROJECT / "src" / "driftscore" / "service" / "static" / "vendor"
AXE = PROJECT / "tests" / "page" / "vendor"
SUMS = "SHA256SUMS"


@dataclass(frozen=True)
class Package:
    """A package of the npm registry, and the files that are taken from it."""

    name: str
    version: str
    sha256: str
    """Of the archive that the registry sends."""
    files: dict[str, str]
    """Path in the package -> name of the file here."""

    def fetch(self, target: Path) -> None:
        """Write the files to a folder; refuse an archive with another checksum."""
        with tempfile.TemporaryDirectory() as folder:
            spec = f"{self.name}@{self.version}"
            command = ["npm", "pack", "--silent", "--pack-destination", folder, spec]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
            [archive] = Path(folder).glob("*.tgz")
            found = hashlib.sha256(archive.read_bytes()).hexdigest()
            if found != self.sha256:
                sys.exit(f"{spec}: the archive has the sha256 {found}, expected {self.sha256}")
            target.mkdir(parents=True, exist_ok=True)
            with tarfile.open(archive) as opened:
                for path, name in self.files.items():
                    member = opened.extractfile(f"package/{path}")
                    if member is None:
                        sys.exit(f"{spec} has no file {path}")
                    (target / name).write_bytes(member.read())


PACKAGES = (
    Package(
        "htm",
        "3.1.1",
        "2425b9bee11409177bcabc7f32e319926fc6690c1701c0b257c88bdff2d5ba90",
        {"preact/standalone.module.js": "htm-preact.js", "LICENSE": "htm-preact.LICENSE"},
    ),
    # The licence only: Preact itself is a part of htm's standalone file.
    Package(
        "preact",
        "10.29.8",
        "b18cb0a457f3d43c7bb30391a74ade7d13e03bc6e77915e061c70c0fe1123299",
        {"LICENSE": "preact.LICENSE"},
    ),
    Package(
        "uplot",
        "1.6.32",
        "4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d",
        {
            "dist/uPlot.iife.min.js": "uplot.js",
            "dist/uPlot.min.css": "uplot.css",
            "LICENSE": "uplot.LICENSE",
        },
    ),
)
AXE_CORE = Package(
    "axe-core",
    "4.14.0",
    "2277b0a3ef47af9b52497faa3e71598e86e0a0e5e6eb295207a5657ede4709af",
    {"axe.min.js": "axe.min.js", "LICENSE": "LICENSE"},
)


def checksums(folder: Path) -> str:
    """Return the lines of `sha256sum` for the files of a folder."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files
    )


def main() -> None:
    """Fetch or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with the checksums")
    parser.add_argument("--axe", action="store_true", help="fetch axe-core for the tests")
    arguments = parser.parse_args()
    if arguments.check:
        if checksums(VENDOR) != (VENDOR / SUMS).read_text(encoding="utf-8"):
            sys.exit(f"The files in {VENDOR} differ from {SUMS}; fetch them again with this script")
        return
    if arguments.axe:
        AXE_CORE.fetch(AXE)
        return
    for package in PACKAGES:
        package.fetch(VENDOR)
    (VENDOR / SUMS).write_text(checksums(VENDOR), encoding="utf-8")


if __name__ == "__main__":
    main()
