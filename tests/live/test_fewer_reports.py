"""Fewer messages: the cool-down of labels, and sounds that several microphones have."""

from datetime import UTC, datetime, timedelta

from driftscore import Classifier, Event
from driftscore.live.listener import Listener, ListenSettings
from driftscore.live.merging import Merging
from driftscore.live.outputs.cooling import Cooldown
from driftscore.live.records import EventRecord
from driftscore.watchlist import WatchedLabel, WatchList

from .scenes import LABELS, Kept, ScriptedSource, scene

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def found(
    at_s: float, label: str = "siren", source: str = "yard", *, seconds: float = 2.0, id: int = 1
) -> EventRecord:
    start = NOON + timedelta(seconds=at_s)
    event = Event(label, at_s, at_s + seconds, 5.0)
    return EventRecord(id, source, event, start, start + timedelta(seconds=seconds))


def test_a_label_is_notified_of_once_within_its_cool_down() -> None:
    labels = (WatchedLabel("siren", cooldown_s=60), WatchedLabel("bell"), WatchedLabel("dog"))
    cooldown = Cooldown()
    cooldown.words("yard", WatchList(labels, cooldown_s=600))
    times = (0, 30, 59, 60, 119, 120, 700)
    assert [cooldown.passes(found(at)) for at in times] == [
        True,
        *[False] * 2,
        True,
        False,
        *[True] * 2,
    ]
    assert [cooldown.passes(found(at, "bell")) for at in times] == [True, *[False] * 5, True]
    assert cooldown.passes(found(1, "siren", "roof"))  # another source has its own


def test_without_a_cool_down_every_event_is_notified_of() -> None:
    cooldown = Cooldown()
    cooldown.words("yard", WatchList.of(["siren"]))
    assert all(cooldown.passes(found(at)) for at in (0, 0.5, 1))


def test_labels_that_are_gone_are_forgotten() -> None:
    cooldown = Cooldown()
    for names in (["siren", "bell"], ["bell"], ["siren", "bell"]):
        cooldown.words("yard", WatchList(tuple(map(WatchedLabel, names)), cooldown_s=600))
        passed = [cooldown.passes(found(1, name)) for name in names]
    assert passed == [True, False]


def test_a_sound_at_two_sources_is_one_event() -> None:
    merging = Merging()
    assert merging.same_as(found(10, id=7)) == ""
    assert merging.same_as(found(11, source="roof")) == "the same as event 7 of yard"
    assert merging.same_as(found(12.9, source="roof")) == "the same as event 7 of yard"
    assert merging.same_as(found(10.5, id=7)) == ""  # the same source: another event
    assert merging.same_as(found(13.6, source="roof", id=8)) == ""  # later
    assert merging.same_as(found(6.9, source="door", id=9)) == ""  # earlier
    assert merging.same_as(found(11, "bell", "roof")) == ""  # something else


def test_with_merge_the_second_source_says_whose_event_it_is(classifier: Classifier) -> None:
    audio = scene(25, [(12.0, "siren")]).samples
    reported = {}
    for merge in (False, True):
        kept = Kept()
        sources = {name: ScriptedSource(audio, endless=False) for name in ("yard", "roof")}
        settings = ListenSettings(merge=merge)
        with Listener(classifier, WatchList.of(LABELS), sources, [kept], settings) as listener:
            assert listener.wait(60)
        reported[merge] = kept.reported
        same = [record for record in kept.events if "the same as event" in record.event.rejected]
        assert len(same) == merge
    assert {record.source for record in reported[False]} == {"yard", "roof"}
    assert len(reported[True]) == 1
