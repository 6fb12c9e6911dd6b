"""Live sources -> events -> outputs: what `driftscore listen` does.

    source (`sources/`) -> reader thread -> bounded queue (`blocks.py`)
        -> worker thread (`worker.py`): events, levels, clips (`clips.py`), policy (`policy.py`)
        -> outputs (`outputs/`: terminal, JSON lines; MQTT, webhooks and programs through
           `outputs/delivery.py`; and the store of `decisions/`)

Audio of microphones, streams and files comes in, events go out. Each source has a reader and a
worker; all of them share one model. A source gives the events that its audio gives as a file. May
import decisions and every room below.
"""
