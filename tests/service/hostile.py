"""Over two hundred requests that no honest client sends, each with the reason that it is one."""

import base64
import gzip
import io
import json
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from driftscore import Audio
from tests.conftest import noise_clip

from .conftest import silence, sound

LABELS = "?labels=siren,rain"
CLASSIFY = "/v1/classify" + LABELS
FORMATS = ("WAV", "FLAC", "OGG", "MP3", "AIFF", "AU", "CAF", "W64", "RF64")


@dataclass(frozen=True)
class Hostile:
    """A request, and what is wrong with it."""

    what: str
    body: bytes = field(repr=False)
    path: str = CLASSIFY
    headers: dict[str, str] = field(default_factory=dict, repr=False)


def requests() -> list[Hostile]:
    """Return all of them."""
    parts = (truncated, mislabelled, headers_that_lie, not_numbers, archives, long_silence, forms,
             texts, noise)  # fmt: skip
    return [one for part in parts for one in part()]


def truncated() -> Iterator[Hostile]:
    """Yield sound files that end too early.

    An mp3 or ogg that is cut in its middle is a shorter one, so these are cut in their headers.
    """
    for format in FORMATS:
        content = sound(noise_clip(2.0), format)
        shares = (0.2, 0.4, 0.6, 0.8, 0.9) if format not in ("OGG", "MP3") else ()
        lengths = [4, 8, 12, 20, *(round(share * len(content)) for share in shares)]
        for length in lengths:
            yield Hostile(f"{format} cut after {length} bytes", content[:length])


def mislabelled() -> Iterator[Hostile]:
    """Yield other things that call themselves sound."""
    contents = {
        "a picture": b"\x89PNG\r\n\x1a\n" + bytes(200),
        "a page": b"<html><script>alert(1)</script></html>",
        "a program": b"\x7fELF" + bytes(200),
        "a shell script": b"#!/bin/sh\nrm -rf /\n",
        "a pickle": pickle.dumps({"a": [1, 2, 3]}),
        "a document": b"%PDF-1.7\n" + bytes(200),
        "a database": b"SQLite format 3\x00" + bytes(200),
        "a playlist": b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n",
        "a concat script": b"ffconcat version 1.0\nfile /etc/passwd\n",
        "a dash manifest": b'<?xml version="1.0"?><MPD><BaseURL>file:///etc/passwd</BaseURL></MPD>',
        "an mp4": b"\x00\x00\x00\x20ftypisom" + bytes(200),
        "a matroska file": b"\x1aE\xdf\xa3" + bytes(200),
        "a path": b"/etc/passwd",
        "a URL": b"http://169.254.169.254/latest/meta-data/",
        "an avi in RIFF": b"RIFF\xff\x00\x00\x00AVI LIST" + bytes(200),
        "a webp in RIFF": b"RIFF\xff\x00\x00\x00WEBPVP8 " + bytes(200),
        "a picture in FORM": b"FORM\x00\x00\x00\xffILBMBMHD" + bytes(200),
        "an ogg of something": b"OggS" + bytes(24) + b"\x01theora" + bytes(200),
        "a tag without an mp3": b"ID3\x04\x00\x00\x7f\x7f\x7f\x7f" + bytes(200),
        "mp3 frames of zeros": b"\xff\xfb\x90\x00" * 50,
        "nothing but a sign": b"fLaC",
        "spaces": b" " * 1000,
    }
    for what, content in contents.items():
        yield Hostile(f"{what} as audio/wav", content, headers={"content-type": "audio/wav"})


def wav(before: bytes = b"", /, **says: int) -> bytes:
    """Return a wav whose header says what it is told to say."""
    known = {"rate": 8000, "channels": 1, "bits": 16, "align": 2, "kind": 1, "size": 3200}
    rate, channels, bits, align, kind, size = {**known, **says}.values()
    about = struct.pack("<HHIIHH", kind, channels, rate, rate * align % 2**32, align, bits)
    data = before + b"fmt " + struct.pack("<I", 16) + about + b"data" + struct.pack("<I", size)
    return b"RIFF" + struct.pack("<I", 0x7FFF0000) + b"WAVE" + data + bytes(range(1, 201)) * 16


def headers_that_lie() -> Iterator[Hostile]:
    """Yield headers that ask for impossible or huge things."""
    for name, values in {
        "rate": (0, 1, 499, 10_000_001, 2**31, 2**32 - 1),
        "channels": (0, 513, 1025, 65535),
        "bits": (0, 128, 65535),
        "kind": (0, 2, 17, 49, 0xFFFF),
        "size": (2**20, 2**31 - 2**16, 2**31 - 2**17),
    }.items():
        for value in values:
            yield Hostile(f"wav with {name} {value}", wav(**{name: value}))
    yield Hostile("wav with 50,000 chunks", wav(b"junk\x00\x00\x00\x00" * 50_000, size=2**30))
    yield Hostile("wav with a huge chunk", wav(b"LIST" + struct.pack("<I", 2**32 - 1)))
    flac = bytearray(sound(noise_clip(1.0), "FLAC"))
    total = bytes(flac[:18]) + bytes([*flac[18:21], flac[21] | 0x0F]) + b"\xff" * 4 + flac[26:]
    yield Hostile("flac with 2**36 samples", total)
    yield Hostile("flac with a huge block", b"fLaC\x81\xff\xff\xff" + bytes(100))
    yield Hostile("flac with a picture of 16 MB", bytes(flac[:42]) + b"\x06\xff\xff\xff" + bytes(9))
    aiff = sound(noise_clip(1.0), "AIFF")
    place = aiff.index(b"COMM") + 16
    for what, number in {
        "infinite": b"\x7f\xff\x80" + bytes(7),
        "NaN": b"\x7f\xff\xc0" + bytes(7),
        "zero": bytes(10),
        "negative": b"\xc0\x0b\xfa" + bytes(7),
    }.items():
        yield Hostile(
            f"aiff with a rate that is {what}", aiff[:place] + number + aiff[place + 10 :]
        )
    caf = sound(noise_clip(1.0), "CAF")
    place = caf.index(b"desc") + 12
    for rate in (float("nan"), float("inf"), -1.0, 0.0, 1e300):
        changed = caf[:place] + struct.pack(">d", rate) + caf[place + 8 :]
        yield Hostile(f"caf with the rate {rate}", changed)
    au = sound(noise_clip(1.0), "AU")
    for name, offset in {"start": 4, "kind": 12, "rate": 16, "channels": 20}.items():
        changed = au[:offset] + b"\x7f\xff\xff\xff" + au[offset + 4 :]
        yield Hostile(f"au with a huge {name}", changed)
    yield Hostile("100 kB of header lines", b"RIFF", headers={"x-long": "x" * 100_000})
    yield Hostile("60 kB of query", b"RIFF", f"/v1/classify?labels={'a,' * 30_000}")


def not_numbers() -> Iterator[Hostile]:
    """Yield samples and JSON with what is not a number."""
    good = sound(Audio(np.full(8000, 0.1, np.float32), 8000), subtype="FLOAT")
    for value in (np.nan, np.inf, -np.inf, 1e30, -3e38):
        yield Hostile(f"a sample of {value}", good[:-4] + np.float32(value).tobytes())
    double = sound(Audio(np.full(8000, 0.1, np.float32), 8000), subtype="DOUBLE")
    yield Hostile("a double of 1e300", double[:-8] + np.float64(1e300).tobytes())
    for path in ("/v1/heads", "/v1/embeddings", "/hf"):
        for name in ("NaN", "Infinity", "-Infinity", "1e999"):
            text = f'{{"labels": ["a", {name}], "input": {name}, "inputs": {name}}}'
            yield Hostile(f"{name} in JSON", text.encode(), path)
    yield Hostile("a threshold of NaN", good, f"{CLASSIFY}&threshold=nan")


def archives() -> Iterator[Hostile]:
    """Yield archives, some of which unpack to far more than they are."""
    zeros = bytes(30_000_000)
    packed, taped = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.wav", zeros)
    with tarfile.open(fileobj=taped, mode="w:gz") as archive_tar:
        archive_tar.addfile(tarfile.TarInfo("../../a.wav"), io.BytesIO())
    squeezed = gzip.compress(zeros)
    array = io.BytesIO()
    np.savez(array, a=np.zeros(3))
    for what, content in {
        "a zip bomb": packed.getvalue(),
        "a tar": taped.getvalue(),
        "a gzip bomb": squeezed,
        "an npz": array.getvalue(),
    }.items():
        yield Hostile(what, content)
        yield Hostile(f"{what} in JSON", as_json(content), "/hf")
    yield Hostile("a body that says it is gzip", squeezed, headers={"content-encoding": "gzip"})
    wrapped = gzip.compress(sound(noise_clip(1.0)))
    yield Hostile("a wav in gzip", wrapped, headers={"content-encoding": "gzip"})


def as_json(content: bytes) -> bytes:
    """Return a request for /hf."""
    text = base64.b64encode(content).decode()
    return json.dumps({"inputs": text, "parameters": {"candidate_labels": ["a", "b"]}}).encode()


def long_silence() -> Iterator[Hostile]:
    """Yield hours of silence in a few kilobytes, and minutes that are silent to the end."""
    hours = sound(silence(36_000, 500), "FLAC")
    assert len(hours) < 100_000
    yield Hostile("ten hours of silence", hours)
    yield Hostile("ten hours of silence in JSON", as_json(hours), "/hf")
    yield Hostile("ten hours by a header", wav(size=2**31 - 2**17, rate=8000))
    unknown = bytearray(hours)
    unknown[21:26] = bytes([unknown[21] & 0xF0, 0, 0, 0, 0])
    yield Hostile("ten hours of unknown length", bytes(unknown))
    for format in ("WAV", "FLAC", "OGG", "MP3"):
        yield Hostile(f"a minute of silence as {format}", sound(silence(60.0), format))
    yield Hostile("ten minutes of silence at 48 kHz", sound(silence(599.0, 48_000), "FLAC"))
    for format in ("WAV", "FLAC"):
        yield Hostile(f"no samples as {format}", sound(silence(0.0), format))


def form(*parts: bytes, boundary: bytes = b"x", end: bytes = b"--") -> bytes:
    """Return the body of a form."""
    return b"".join(b"--" + boundary + b"\r\n" + part + b"\r\n" for part in parts) + (
        b"--" + boundary + end + b"\r\n"
    )


def forms() -> Iterator[Hostile]:
    """Yield forms that are damaged or far too much."""
    field_ = b'Content-Disposition: form-data; name="labels"\r\n\r\na,b'
    file = b'Content-Disposition: form-data; name="file"; filename="../../x"\r\n\r\nRIFF'
    clip = sound(noise_clip(0.5))
    good = file.replace(b"RIFF", clip)

    def example(label: str, content: bytes) -> bytes:
        name = f'form-data; name="examples:{label}"; filename="a.wav"'
        return f"Content-Disposition: {name}\r\n\r\n".encode() + content

    kind = {"content-type": "multipart/form-data; boundary=x"}
    for what, body in {
        "a form without an end": form(field_, file, end=b""),
        "a form without parts": form(),
        "a form of 1,000 fields": form(*[field_] * 1000),
        "a form of 100 files": form(*[file] * 100),
        "a field of 1 MB": form(field_ + b"a" * 1_000_000, file),
        "a header of 1 MB in a form": form(b"X: " + b"a" * 1_000_000 + b"\r\n\r\n"),
        "a part without a name": form(b"\r\nabc"),
        "a form in a form": form(
            b'Content-Disposition: form-data; name="file"\r\n\r\n' + form(file)
        ),
        "a file that names a path": form(field_, file),
        "an example without a recording": form(field_, example("bell", b"RIFF")),
        "an example without a label": form(field_, good, example("", clip)),
        "an example of a label that is a path": form(field_, good, example("/etc/", clip)),
        "an example that is no sound": form(field_, good, example("bell", b"RIFF" + bytes(99))),
        "an example of silence": form(field_, good, example("bell", sound(silence(5.0)))),
        "an example of ten hours": form(
            field_, good, example("bell", sound(silence(36_000, 500), "FLAC"))
        ),
        "300 examples": form(field_, good, *[example("bell", clip)] * 300),
        "examples of 120 labels": form(good, *[example(f"bell {n}", clip) for n in range(60)] * 2),
        "a form that is none": b"hello",
        "an empty form": b"",
    }.items():
        yield Hostile(what, body, "/v1/classify", kind)
    for header in (
        "multipart/form-data",
        "multipart/form-data; boundary=",
        'multipart/form-data; boundary="',
    ):
        yield Hostile(
            f"the type {header}", form(field_, file), "/v1/classify", {"content-type": header}
        )


def texts() -> Iterator[Hostile]:
    """Yield JSON and options that are wrong in every way that came to mind."""
    wav_text = base64.b64encode(sound(noise_clip(0.5))).decode()
    for path in ("/v1/heads", "/v1/embeddings", "/hf"):
        for what, body in {
            "deep": b'{"labels":' + b"[" * 9_000,
            "wide": b'{"labels": [' + b"[]," * 1_000_000 + b"[]]}",
            "a huge number": b'{"labels": [' + b"9" * 100_000 + b"]}",
            "not UTF-8": b'{"labels": ["\xff\xfe"]}',
            "half a pair": b'{"labels": ["\\ud800"], "input": "\\ud800", "inputs": "\\ud800"}',
            "cut": b'{"labels": ["a", "b"',
            "a list": b"[1, 2]",
            "a string": b'"labels"',
            "null": b"null",
        }.items():
            yield Hostile(f"JSON that is {what}", body, path)
    for inputs in ("file:///etc/passwd", "http://localhost:1/", "/etc/passwd", "../x", "s3://a/b"):
        given = {"inputs": inputs, "parameters": {"candidate_labels": ["a", "b"]}}
        yield Hostile(f"{inputs} as a recording", json.dumps(given).encode(), "/hf")
        asked = {"input": [inputs], "modality": "audio"}
        yield Hostile(f"{inputs} to embed", json.dumps(asked).encode(), "/v1/embeddings")
    many = {"inputs": wav_text, "parameters": {"candidate_labels": [f"l{n}" for n in range(5000)]}}
    yield Hostile("5,000 labels", json.dumps(many).encode(), "/hf")
    rules = (
        "os:system",
        "subprocess:Popen",
        "../rules/das",
        "das.compile",
        "\x00",
        "zs_audio",
        "tgap",
    )
    for rule in rules:
        head = {"labels": ["a", "b"], "rule": rule}
        yield Hostile(f"the rule {rule!r}", json.dumps(head).encode(), "/v1/heads")


def noise() -> Iterator[Hostile]:
    """Yield random bytes behind the signs of sound files."""
    rng = np.random.default_rng(13)
    signs = (
        b"RIFF\x24\x10\x00\x00WAVEfmt ",
        b"fLaC\x00\x00\x00\x22",
        b"FORM\x00\x00\x10\x00AIFFCOMM",
        b"OggS\x00\x02",
        b".snd\x00\x00\x00\x18",
        b"caff\x00\x01\x00\x00desc",
    )
    for sign in signs:
        for number in range(3):
            yield Hostile(f"noise {number} behind {sign[:4]!r}", sign + rng.bytes(5000))
