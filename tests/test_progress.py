"""Progress bars: drawn on a terminal, in a notebook or on request, and otherwise not at all."""

import io
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType

import pytest

from driftscore import Backbone, Classifier
from driftscore.system.progress import progress_bar

from .conftest import LABELS, WriteWav


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that draws a bar on a stream and returns what was written."""

    def drawn(total: int | None, show: bool | None, stream: io.StringIO) -> str:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_bar("Working", total, show=show) as advance:
            advance(1)
            advance(2)
        return stream.getvalue()

    return drawn


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make rich find itself in a notebook without ipywidgets."""
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("driftscore.system.progress.find_spec", lambda name: None)


def test_a_terminal_shows_what_is_done_of_how_many(draw: Callable[..., str]) -> None:
    text = draw(3, None, Terminal())
    assert "Working" in text
    assert "3/3" in text


def test_a_total_may_be_unknown(draw: Callable[..., str]) -> None:
    assert "3/?" in draw(None, None, Terminal())


@pytest.mark.parametrize(("total", "show"), [(0, None), (0, True), (3, False)])
def test_nothing_is_drawn_for_no_work_or_if_it_is_not_wanted(
    draw: Callable[..., str], total: int, show: bool | None
) -> None:
    assert draw(total, show, Terminal()) == ""


def test_a_pipe_shows_nothing_unless_it_is_asked_for(draw: Callable[..., str]) -> None:
    assert draw(3, None, io.StringIO()) == ""
    assert "3/3" in draw(3, True, io.StringIO())


@pytest.mark.usefixtures("notebook")
def test_a_notebook_without_widgets_shows_a_bar_as_text(draw: Callable[..., str]) -> None:
    assert "3/3" in draw(3, None, io.StringIO())


@pytest.mark.usefixtures("notebook")
def test_a_notebook_with_widgets_shows_a_bar_in_a_widget(
    draw: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    class Output(nullcontext[None]):
        """The part of ipywidgets that rich uses."""

        def clear_output(self, wait: bool) -> None: ...

        def close(self) -> None: ...

    display, widgets = ModuleType("IPython.display"), ModuleType("ipywidgets")
    display.display = lambda *shown: None  # type: ignore[attr-defined]
    widgets.Output = Output  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setitem(sys.modules, "ipywidgets", widgets)
    monkeypatch.setattr("driftscore.system.progress.find_spec", lambda name: object())
    monkeypatch.setattr("rich.jupyter.display", lambda segments, text: shown.append(text))
    assert draw(3, None, io.StringIO()) == ""
    assert any("Working" in text for text in shown)


def test_a_classifier_shows_a_bar_for_audio_if_it_is_asked_to(
    capsys: pytest.CaptureFixture[str], wav: WriteWav, fake: Backbone
) -> None:
    files = [wav("a.wav"), wav("b.wav", seed=1)]
    Classifier(LABELS, backbone=fake, progress=True).predict(files)
    assert "2/2" in capsys.readouterr().err
    Classifier(LABELS, backbone=fake).predict(files)
    assert capsys.readouterr().err == ""


def test_rich_is_imported_only_for_a_bar() -> None:
    code = (
        "import sys; from driftscore.system.progress import progress_bar\n"
        "with progress_bar('Working', 3) as advance: advance(3)\n"
        "print('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
