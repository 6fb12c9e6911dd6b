"""Switch off the usage statistics of the libraries that driftscore uses, before they are imported.

Several of them report what they are used for, or write an identifier of the device. Environment
variables switch that off for this process and for every one that it starts. A variable that is set
already is left alone.
"""

import os
import sys

VARIABLES = {
    "DO_NOT_TRACK": "1",  # honoured by many tools
    "HF_HUB_DISABLE_TELEMETRY": "1",  # huggingface_hub, and transformers through it
    "ORT_DISABLE_TELEMETRY": "1",  # onnxruntime; after its import it would be too late
    "RAY_USAGE_STATS_ENABLED": "0",  # Ray
}


def disable_telemetry() -> None:
    """Set the variables; called when driftscore is imported, in workers as well."""
    for name, value in VARIABLES.items():
        os.environ.setdefault(name, value)


def disable_openvino_telemetry() -> None:
    """Let OpenVINO use the stand-in that it has for a missing `openvino_telemetry`.

    No variable switches it off: importing OpenVINO writes an identifier and sends an event.
    Python refuses to import a module whose entry is None.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
