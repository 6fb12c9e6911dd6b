"""The figures about examples that the page tells are those of the stored rows."""

import json

from training.examples import COUNTS, NAMES, PAGE, STORED, rendered


def test_the_table_of_the_page_is_that_of_the_stored_rows() -> None:
    lines = json.loads(STORED.read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    assert "<!-- examples -->" in text
    assert rendered(text, lines) == text, "run `python -m training.examples --store FOLDER`"
    changed = [{**lines[1], "noise": 1.0}, *lines[2:]]
    assert rendered(text, changed) != text
    for model in {line["model"] for line in lines}:
        of_model = [(line["set"], line["examples"]) for line in lines if line["model"] == model]
        assert of_model == [(name, count) for name in NAMES for count in COUNTS]
