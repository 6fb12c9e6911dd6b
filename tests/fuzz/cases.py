"""Cases of every command: its own parameters, each with good, damaged and odd values.

The parameters are read from the command itself, so a new option takes part without an edit; a new
command needs a line in `COMMANDS`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from hypothesis import strategies as st

from driftscore.cli import app
from driftscore.formats import format_names
from driftscore.scoring.rules import rule_names
from tests.mutation import DAMAGE, Damage, damaged

from .rule import Case
from .world import World

LABELS = (
    "dog bark, siren", "dog,cat,rain", "dog", "", ",,,", "a,a", "=1+1, dog", "\x1b[31mred, dog",
    "hond, kat", "犬, 猫", "x" * 3000 + ",y", "\udcff, dog", "dog\nbark, cat", "{c}, {p}", "-1, +2",
)  # fmt: skip
NUMBERS = ("0", "1", "0.5", "-1", "2", "nan", "inf", "1e999", "", "x", "0x10", "9" * 20, "1_0", "٣")
NAMES = ("", ".", "..", "-", "~", "~nobody/x", "absent", "absent.npz", "*", "[", "a**b",
         "x" * 300, "\udcff", "a\nb", "--", "nowhere://x", "s3://b/x.wav", "github://x",
         "memory://none/*.wav", "file:///nowhere", "/dev/null", "/dev/zero",
         "/proc/self/mem")  # fmt: skip
OUTS = ("{out}/new.csv", "{out}/new.npz", "{out}/new.safetensors", "{out}/new.json", "{out}/a/b.md",
        "{out}/new.html", "{out}/old.csv", "{out}/link.csv", "{out}/old.csv/below", "{out}", "-",
        "/dev/null", "/dev/full", "", "/proc/x", "nowhere://x.npz", "github://x.csv",
        "memory://o/x.npz", "{out}/\udcff.csv", "{out}/" + "x" * 300)  # fmt: skip
PLUGINS = ("auto", "nothing", "", "json:dumps", "absent:x", ":", "os", "x" * 500, "\udcff", "../x")
VARIABLES: tuple[tuple[str, tuple[str | None, ...]], ...] = (
    ("HOME", (None, "", "{root}/absent", "{root}/work/notes.txt", "relative", "{root}/home")),
    ("DRIFTSCORE_CACHE", ("", "{root}/work/notes.txt", "{root}/cache/new/deep", "~nobody/x",
                          "/proc/x", "{root}/cache")),
    ("XDG_CACHE_HOME", ("", "{root}/home/.cache", "/dev/null")),
    ("COLUMNS", ("0", "-5", "abc", "1", "100000", "")),
    ("LANG", ("C", "xx_YY.nope", "de_DE.ISO-8859-1", "")),
    ("TERM", ("dumb", "xterm-256color", "nope")),
    ("TMPDIR", ("{root}/tmp", "{root}/absent", "{root}/work/notes.txt", "")),
    ("DRIFTSCORE_MAX_HOURS", ("0", "nan", "x", "1e-5", "inf", "24")),
    ("DRIFTSCORE_LAB", ("{root}/cache/lab2", "{root}/work/notes.txt", "~nobody/x", "")),
    ("DRIFTSCORE_DATA", ("{root}/cache/data2", "{root}/work/notes.txt", "~nobody/x", "")),
    ("DRIFTSCORE_MN04", ("{root}/work/notes.txt", "{root}/absent", "")),
    ("FORCE_COLOR", ("1",)),
)  # fmt: skip
ENCODINGS = ("utf-8", "ascii", "latin-1", "cp1252", "utf-16")


@dataclass(frozen=True)
class Plan:
    """How a command is fuzzed: arguments that make it quick, and how many cases it gets."""

    always: tuple[str, ...] = ()
    share: float = 1.0
    never: tuple[str, ...] = ()
    """Options that are not drawn."""


FAKE = ("--backbone", "fake")
ASK = ("--labels", "dog bark, siren")
LASTING = {
    "listen": "runs until it is stopped: tests/live",
    "serve": "runs until it is stopped: tests/service/test_hostile.py, schemathesis",
}
"""Commands that do not end by themselves, and where they are tested instead."""
COMMANDS: dict[str, Plan] = {
    "audit show": Plan(),
    "audit replay": Plan(),
    "lab soundscape": Plan(("--seconds", "30", "--quiet", "5", "--events", "1"), share=0.2),
    "classify": Plan((*FAKE, *ASK), share=2.0, never=("--engine",)),
    "detect": Plan((*FAKE, *ASK), share=1.5),
    "embed": Plan(FAKE, never=("--engine",)),
    "export": Plan(share=0.2),
    "head": Plan((*FAKE, *ASK), share=1.5),
    "score": Plan((*FAKE, *ASK), share=1.5),
    "find": Plan(FAKE),
    "learn": Plan(),
    "explain": Plan(ASK, share=0.5),
    "prompts": Plan(ASK),
    "calibrate": Plan(FAKE, never=("--engine",)),
    # Answers are kept beside the events; see tests/test_review.py for damaged ones.
    "review": Plan(never=("--play", "--answers")),
    "list": Plan(),
    "completion": Plan(("bash",), share=0.2),
    "doctor": Plan(share=0.5),
    "cache": Plan(share=0.5),
    "cache clear": Plan(share=0.5),
    "lab run": Plan(("--plan",), never=("--engine",)),
    "lab status": Plan(),
    "lab report": Plan(share=0.5),
    "lab export": Plan(),
    "lab mixes": Plan(),
    "lab rebuild": Plan(),
    "lab grids": Plan(share=0.1),
    "data list": Plan(share=0.1),
    "data get": Plan(share=0.5),
    "data check": Plan(),
}


def all_commands() -> dict[str, Any]:
    """Return every command of the tool by its name, with those of its groups."""
    found: dict[str, Any] = {}
    for name, command in app.all_commands().items():
        if not isinstance(command, click.Group):
            found[name] = command
            continue
        if command.invoke_without_command:
            found[name] = command
        found |= {f"{name} {inner}": one for inner, one in command.commands.items()}
    return found


def command_cases(name: str, world: World) -> st.SearchStrategy[Case]:
    """Return a strategy for the cases of a command; its files are written when it is drawn."""
    command, plan = all_commands()[name], COMMANDS[name]

    @st.composite
    def draw_case(draw: st.DrawFn) -> Case:
        world.reset()
        given: list[str] = []
        if draw(st.integers(0, 5)):  # mostly what makes the command work
            given += plan.always
        for parameter in command.params:
            given += _drawn(draw, parameter, plan, world)
        changes: dict[str, str | None] = {}
        if not draw(st.integers(0, 3)):
            for variable, values in draw(st.lists(st.sampled_from(VARIABLES), max_size=3)):
                changes[variable] = draw(st.sampled_from(values))
        encoding = draw(st.sampled_from(ENCODINGS))
        stdin = draw(st.sampled_from([b"", b"y\n", b"\xff\0"]))
        return Case((*name.split(), *given), changes, encoding, stdin)

    return draw_case()


def _drawn(draw: st.DrawFn, parameter: Any, plan: Plan, world: World) -> list[str]:
    """Return the words of a parameter: none, one or several, good or odd."""
    if parameter.param_type_name == "argument":
        count = draw(st.integers(0, 8))
        count = min(count, 4) if parameter.nargs == -1 else min(count, 1)
        return [draw(_values(parameter.name or "", world)) for _ in range(count)]
    flag = max(parameter.opts, key=len)
    rarely = 1 if parameter.required or flag in ("--out", "--head") else 9
    if flag in plan.never or flag == "--help" or draw(st.integers(0, rarely)) == 1:
        return []
    if rarely == 9 and draw(st.integers(0, 8)):
        return []
    if parameter.is_flag:
        return [flag]
    times = draw(st.integers(1, 2)) if parameter.multiple else 1
    return [word for _ in range(times) for word in (flag, draw(_values(flag, world)))]


def _values(parameter: str, world: World) -> st.SearchStrategy[str]:
    """Return values for an option or argument."""
    if parameter == "database":
        return st.one_of(damaged_audits(world), st.sampled_from(NAMES))
    if parameter == "--clips":  # a folder to write to; the argument of `score` is a file to read
        return st.sampled_from(_outs(world))
    own = parameter.lstrip("-").replace("-", "_")
    texts = {
        "labels": (*LABELS, *map(str, world.files.get("labels", []))),
        "out": _outs(world), "path": _outs(world), "answers": _outs(world),
        "watch_out": _outs(world), "audit": _outs(world),
        "format": (*format_names(), *PLUGINS), "rule": (*rule_names(), *PLUGINS),
        "compare": (*rule_names(), *PLUGINS), "backbone": ("fake", *PLUGINS),
        "preset": ("das2026", "acevedo2025", *PLUGINS),
        "set": (
            "beta=1", "tau=x", "=", "a=b=c", "beta=nan", "a", "prompt={c}", "prompt=", "prompt={x}",
            "prompt={c!r:>99}", "prompt=\udcff{c}", "reference=matched", "reference=x",
            "direction=svd", "skip_same=yes", "pack=generic5", "templates=x", "min_duration_s=1",
            "thresholds_from=recording", "thresholds_from=x", "margin_s=nan", "gap_s=1e99",
            f"noise={world.inputs}", "pool=x.npz",
        ),
        "runtime": ("auto", "onnx", "x", ""), "mirror": ("http://127.0.0.1:1", "", "x"),
        "what": ("rules", "packs", "presets", "formats", "datasets", "noises", "mixings", "x", ""),
        "names": ("texts", "audio", "models", "lab", "data", "x", ""),
        "name": ("esc50", "folder", "musan", "recorded", "tau2019", "x", "", "../x"),
        "store": (f"{world.root}/cache/lab", f"{world.root}/work/notes.txt", "~nobody/x"),
        "calibration": ("none",), "plot": _outs(world), "order": ("mixed", "time", "", "x"),
        "home": (f"{world.root}/cache/corpus", f"{world.root}/work/notes.txt", "", "-", "s3://b/x"),
        "since": (*NUMBERS, "2026-11-16", "2026-11-16T10:00+14:00", "0001-01-01T00:00+05:00"),
        "day": ("2026-11-16", "", "x"), "label": ("dog bark", "siren", ""),
        "start": ("2026-11-16T03:15:00+01:00", "20261116_031500", "now", "", "9999-12-31T23:59:59"),
    }  # fmt: skip
    kinds = {
        "files": ("recordings",), "recordings": ("recordings",), "noise": ("recordings",),
        "pool": ("recordings", "embeddings"), "update": ("recordings",), "clips": ("embeddings",),
        "archive": ("embeddings",), "head": ("heads",), "calibration": ("calibrations",),
        "text_embeddings": ("embeddings",), "pack": ("packs",), "templates": ("packs",),
        "preset": ("presets",), "grid": ("grids",), "backbone": ("embeddings",),
        "file": ("mixes",), "events_file": ("events",), "watch": ("watch lists",),
    }  # fmt: skip
    choices: list[st.SearchStrategy[str]] = []
    if own in texts:
        choices.append(st.sampled_from(texts[own]))
    if own in kinds:
        paths = [path for kind in kinds[own] for path in world.files.get(kind, [])]
        if paths:
            choices += [st.sampled_from([str(path) for path in paths])] * 2
            choices.append(damaged_files(world, paths))
    if own in ("beta", "threshold", "threads", "weight", "most", "seed", "workers", "precision",
               "margin", "window", "hop", "false_alarms", "min_duration"):  # fmt: skip
        return st.sampled_from(NUMBERS)
    if own in (
        "out",
        "path",
        "answers",
        "watch_out",
        "audit",
        "labels",
        "format",
        "store",
        "home",
        "plot",
        "start",
    ):
        return choices[0]  # what is named here is written to, or is a text
    choices.append(st.sampled_from([str(path) for path in world.all_files()]))
    choices.append(st.sampled_from(NAMES))
    return st.one_of(choices)


def _outs(world: World) -> tuple[str, ...]:
    return tuple(name.replace("{out}", str(world.out)) for name in OUTS)


def damaged_audits(world: World) -> st.SearchStrategy[str]:
    """Return a strategy for a copy of a store in which the file or a copy may be damaged."""
    good = world.files["audits"][0]

    def write(path: Path, changes: list[Damage]) -> str:
        home = world.inputs / "case" / f"audit{len(changes)}"
        home.mkdir(parents=True, exist_ok=True)
        for file in world.files["audits"]:
            copy = home / file.relative_to(good.parent)
            copy.parent.mkdir(exist_ok=True)
            content = file.read_bytes()
            copy.write_bytes(damaged(content, changes) if file == path else content)
        return str(home / good.name)

    return st.one_of(
        st.just(str(good)), st.builds(write, st.sampled_from(world.files["audits"]), DAMAGE)
    )


def damaged_files(world: World, paths: list[Path]) -> st.SearchStrategy[str]:
    """Return a strategy for the path of a damaged copy of one of some files."""

    def write(path: Path, changes: list[Damage], name: str) -> str:
        data = damaged(path.read_bytes(), changes)
        copy = world.inputs / "case" / f"{abs(hash((data, name))) % 10**8}{name}{path.suffix}"
        copy.write_bytes(data)
        return str(copy)

    odd = st.sampled_from(["", "=cmd", "\x1b[2J", "a\nb", "\udcff", "-", "'\"", "ü", "%s{c}"])
    return st.builds(write, st.sampled_from(paths), DAMAGE, odd)
