"""The noise slider of the page: a 10 s clip mixed, embedded, scored by three rules and drawn.

`mini`, ten labels, at changing SNRs, over HTTP within this process: from the request to its answer
at the server. The first answer for new words is not a part of it: it encodes them.
"""

import io
import time

import numpy as np
import soundfile

from bench.figures import Figure, NotHereError, in_turns, scaled

BAR_MS = 150.0
LABELS = ["siren", "church bell", "alarm clock", "rain", "speech", "dog bark", "car engine",
          "birds singing", "footsteps", "ticking clock"]  # fmt: skip
SECONDS, RATE = 10, 44_100


def measure(*, quick: bool) -> list[Figure]:
    """Time answers of the slider."""
    try:
        from fastapi.testclient import TestClient

        from driftscore.service.app import create_app
        from driftscore.service.settings import ServiceSettings
    except ImportError as error:
        raise NotHereError("the extra serve is not installed") from error
    with TestClient(create_app(ServiceSettings()), base_url="http://localhost") as client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.05)
        clip = client.post("/page/clips", params={"name": "clip.wav"}, content=clip_file()).json()
        path, snrs = f"/page/clips/{clip['id']}/rank", iter(np.tile(np.arange(20, -21, -1), 20))

        def answer() -> None:
            body = {"labels": LABELS, "noise": "traffic", "snr_db": int(next(snrs))}
            client.post(path, json=body).raise_for_status()

        answer()  # the words, and the noise
        milliseconds = scaled(in_turns({"rank": answer}, turns=11 if quick else 101)["rank"], 1e3)
    return [
        Figure(
            "slider, 10 s clip, mini: request to answer",
            milliseconds,
            "ms",
            bar=f"< {BAR_MS:.0f} ms",
            met=milliseconds.high < BAR_MS,
        )
    ]


def clip_file() -> bytes:
    """Return the clip: 10 s of noise as a wav file."""
    file = io.BytesIO()
    samples = 0.1 * np.random.default_rng(0).standard_normal(SECONDS * RATE)
    soundfile.write(file, samples, RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()
