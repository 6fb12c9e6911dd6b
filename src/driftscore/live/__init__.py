"""Live sources -> events -> outputs: what `driftscore listen` does.

    source (`sources/`) -> reader thread -> bounded queue (`blocks.py`)
        -> worker thread (`worker.py`): events, levels (`meter.py`), clips (`clips.py`)
        -> outputs (`outputs/`): terminal, JSON lines, MQTT, and the SQLite store (`store.py`)

Each source has a reader and a worker; all of them share one model. A source gives the events that
its audio gives as a file.
"""
