"""What is reported: confirmation, sounds that several microphones have, the cool-down of labels."""

from dataclasses import replace
from datetime import timedelta

from driftscore import Classifier
from driftscore.decisions.records import StoredEvent
from driftscore.events.watchlist import WatchedLabel, WatchList
from driftscore.live.listener import Listener, ListenSettings
from driftscore.live.policy import Policy

from .scenes import LABELS, NOON, Kept, ScriptedSource, scene, stored


def event(
    at_s: float, label: str = "siren", source: str = "yard", *, seconds: float = 2.0, id: int = 1
) -> StoredEvent:
    return stored(id, label, source, start=NOON + timedelta(seconds=at_s), seconds=seconds)


def policy(watch: WatchList, *sources: str, merge: bool = False) -> Policy:
    made = Policy(merge=merge)
    for source in sources or ("yard",):
        made.begin(source, watch)
    return made


def sent(policy: Policy, event: StoredEvent) -> bool:
    decided = policy.decide(event, event.end_s)
    assert not decided.rejected
    return not decided.cooling


def test_confirmation_counts_within_a_minute() -> None:
    three = policy(WatchList((WatchedLabel("siren", confirm=3),)))
    why = [three.decide(event(at), at).rejected for at in (0.0, 50.0, 70.0, 100.0)]
    assert why == [
        "unconfirmed: 1 of 3 within a minute",
        "unconfirmed: 2 of 3 within a minute",
        "unconfirmed: 2 of 3 within a minute",  # the first is too old
        "",
    ]
    assert three.would_confirm("yard", "siren", 101.0)
    assert not three.would_confirm("yard", "siren", 170.0)
    three.begin("yard", WatchList((WatchedLabel("siren", confirm=3),)))  # after a gap
    assert not three.would_confirm("yard", "siren", 1.0)


def test_a_label_is_notified_of_once_within_its_cool_down() -> None:
    labels = (WatchedLabel("siren", cooldown_s=60), WatchedLabel("bell"), WatchedLabel("dog"))
    cooling = policy(WatchList(labels, cooldown_s=600), "yard", "roof")
    times = (0, 30, 59, 60, 119, 120, 700)
    sirens = [sent(cooling, event(at)) for at in times]
    assert sirens == [True, False, False, True, False, True, True]
    assert [sent(cooling, event(at, "bell")) for at in times] == [True, *[False] * 5, True]
    assert sent(cooling, event(1, "siren", "roof"))  # another source has its own


def test_without_a_cool_down_every_event_is_notified_of() -> None:
    plain = policy(WatchList.of(["siren"]))
    assert all(sent(plain, event(at)) for at in (0, 0.5, 1))


def test_labels_that_are_gone_are_forgotten() -> None:
    changing = Policy()
    for names in (["siren", "bell"], ["bell"], ["siren", "bell"]):
        changing.begin("yard", WatchList(tuple(map(WatchedLabel, names)), cooldown_s=600))
        messages = [sent(changing, event(1, name)) for name in names]
    assert messages == [True, False]


def test_a_sound_at_two_sources_is_one_event() -> None:
    merging = policy(WatchList.of(["siren", "bell"]), "yard", "roof", "door", merge=True)

    def why(event: StoredEvent) -> str:
        return merging.decide(event, event.end_s).rejected

    assert why(event(10, id=7)) == ""
    assert why(event(11, source="roof")) == "the same as event 7 of yard"
    assert why(event(12.9, source="roof")) == "the same as event 7 of yard"
    assert why(event(10.5, id=7)) == ""  # the same source: another event
    assert why(event(13.6, source="roof", id=8)) == ""  # later
    assert why(event(6.9, source="door", id=9)) == ""  # earlier
    assert why(event(11, "bell", "roof")) == ""  # something else


def test_the_order_is_confirm_merge_cool_down() -> None:
    watch = WatchList((WatchedLabel("siren", confirm=2),), cooldown_s=600)
    both = policy(watch, "yard", "roof", merge=True)

    def why(event: StoredEvent) -> str:
        return both.decide(event, event.end_s).rejected

    assert "unconfirmed" in why(event(0))
    assert "unconfirmed" in why(event(0.5, source="roof"))  # not the same as one not reported
    assert sent(both, event(10, id=5))
    assert "event 5 of yard" in why(event(10, source="roof"))
    assert sent(both, event(30, source="roof"))  # a merged event begins no cool-down
    assert why(replace(event(40), rejected="shorter than asked for")) == "shorter than asked for"


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
        assert sum("the same as event" in event.rejected for event in kept.events) == merge
    assert {event.source for event in reported[False]} == {"yard", "roof"}
    assert len(reported[True]) == 1
