"""Write the checksums that `mini` verifies on loading: `python -m training.seal`."""

from driftscore.backbones.mini import HOME, MANIFEST
from driftscore.storage.files import replacing, sha256

FILES = ("audio.onnx", "pool.onnx", "text.onnx", "tokenizer.json")


def main() -> None:
    """Write the manifest and print the size of the model."""
    lines = ["# Checksums of the embedded model's files: made by `python -m training.seal`.", ""]
    lines += ["[sha256]", *(f'"{name}" = "{sha256(HOME / name)}"' for name in FILES)]
    with replacing(HOME / MANIFEST) as partial:
        partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
    size = sum((HOME / name).stat().st_size for name in (*FILES, MANIFEST))
    print(f"{HOME}: {size / 1e6:.2f} MB in total")


if __name__ == "__main__":
    main()
