"""Classifier: labels, a rule and an embedder -> the labels of recordings.

It behaves as a scikit-learn estimator (`get_params`, `set_params`, `clone`, `fit`, `predict`,
`decision_function`, `score`) without needing scikit-learn. `fit` encodes the labels, and learns
from recordings of them if there are any.
"""

import copy
import hashlib
import inspect
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from functools import partial
from math import isfinite
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from driftscore.audio.recordings import Recording
from driftscore.backbones import DEFAULT_BACKBONE, Backbone, MinimalBackbone, check_model
from driftscore.backbones.vectors import Matrix, Scores, matrix, unit
from driftscore.embedder import Embedded, Embedder
from driftscore.engines.archive import is_stored, open_embeddings
from driftscore.engines.examples import check_words, embed_examples
from driftscore.errors import AudioError, MismatchError, UsageError, unknown
from driftscore.scoring.bank import build_bank, encode_bank
from driftscore.scoring.calibration import Calibration, anchored, standardise
from driftscore.scoring.examples import NOT, Example, Examples, with_examples
from driftscore.scoring.head import Head, Result, results_of, score_embeddings
from driftscore.scoring.meaning import (
    Explanation,
    UnclearWordWarning,
    describe_unclear,
    explain,
    in_one_sentence,
)
from driftscore.scoring.rules import (
    NOISY_PROMPTS,
    Compile,
    Needs,
    Rule,
    RuleModule,
    check_settings,
    choose_rule,
    compile_head,
    find_rule,
)
from driftscore.system.progress import progress_bar, seconds_bar
from driftscore.text.cache import TextEncoder
from driftscore.text.presets import AUTO, DEFAULT_PRESET, Preset, PromptSettings, load_preset
from driftscore.text.prompts import check_labels, compose, words

if TYPE_CHECKING:  # who only labels recordings imports nothing of events
    from sklearn.utils import Tags

    from driftscore.detector import Detector
    from driftscore.events.tracking import Detection, Event
    from driftscore.events.watchlist import WatchList

_EMBEDDING_SETTINGS = ("noise", "pool")
"""Settings of rules that may be given as recordings, and are embedded first."""
_ANCHOR = "anchor"
Recordings = Iterable[Recording] | None
RowsLike = ArrayLike | None


class Classifier:
    """Label recordings with words of one's own.

    Parameters
    ----------
        labels: the sounds to look for, in words.
        backbone: the name or path of a model, a loaded model, or an `Embedder`, which also says
            in which runtime and engine it runs and whether embeddings of audio are cached.
        rule: how labels are scored: a name, "module:function", or a function from a bank to a head;
            "auto" is that of the preset, and by default the best one for the model.
        settings: settings of the rule, such as {"beta": 0.1}. `noise` and `pool`, for the rules
            that use them, are recordings, an npz of embeddings or an array of embeddings.
        prompts: how prompts are composed; None for those of the preset.
        preset: the settings of a paper, by name, or the path of a preset file.
        standardised: whether scores are standard deviations above what a label scores on other
            sounds, for which a calibration is needed. None: with a threshold, and for events, if
            the preset and the rule allow it; labels are compared by the scores of the rule.
        threshold: `predict_labels` reports every label with at least this score. Thresholds of
            events are settings of `Detection`.
        head: a compiled head, in place of labels and rule.
        calibration: how noise moves the model's embeddings: "auto" for the calibration that comes
            with the model, if there is one; the path of one; a loaded one; None to use none.
        progress: show progress bars; None means those of texts and of events, and only on a
            terminal or in a notebook.

    """

    rule_: Rule
    why_: str
    """Why this rule was chosen."""
    embedder_: Embedder
    calibration_: Calibration | None
    """What scores are measured against; None if they are raw."""
    examples_: Examples = Examples()
    """What it has learnt from."""
    unclear_: Mapping[str, str] = MappingProxyType({})
    """Labels that the model does not understand, each with a sentence about it."""

    def __init__(
        self,
        labels: Iterable[str] | None = None,
        *,
        backbone: str | PathLike[str] | MinimalBackbone | Embedder = DEFAULT_BACKBONE,
        rule: str | Compile | RuleModule = AUTO,
        settings: Mapping[str, object] | None = None,
        prompts: PromptSettings | None = None,
        preset: str | PathLike[str] | Preset = DEFAULT_PRESET,
        standardised: bool | None = None,
        threshold: float | None = None,
        head: Head | str | PathLike[str] | None = None,
        calibration: Calibration | str | PathLike[str] | None = AUTO,
        progress: bool | None = None,
    ) -> None:
        self.labels = tuple(labels) if isinstance(labels, Iterator) else labels
        self.backbone = backbone
        self.rule = rule
        self.settings = settings
        self.prompts = prompts
        self.preset = preset
        self.standardised = standardised
        self.threshold = threshold
        self.head = head
        self.calibration = calibration
        self.progress = progress

    def fit(
        self,
        X: Iterable[Recording] | Matrix | Examples | None = None,
        y: Iterable[str] | None = None,
    ) -> "Classifier":
        """Load the model, learn from examples if there are any, and compile the head.

        X are recordings, or a matrix with one embedding of this model per row, and y are their
        labels; or X are `Examples`, which have theirs. Labels of y that are not among `labels` are
        learnt from their examples alone; those called "not" are examples of what no label means.
        Without X nothing is learnt.
        """
        self.examples_ = Examples()
        if isinstance(X, Examples):
            self.examples_ = X
        elif X is not None:
            if y is None:
                raise UsageError("Give the label of each recording: fit(recordings, labels)")
            self.examples_ = self._learn(X, y)
        return self._compile(one_by_one=self.threshold is not None)

    def _compile(self, *, one_by_one: bool) -> "Classifier":
        """Compile the head; standardised where labels are judged one by one, if that can be."""
        examples = self.examples_
        labels = self._check(examples)
        model, cache = self._model(), self.embedder_.text_cache
        if self.head is not None:
            head = self.head if isinstance(self.head, Head) else Head.load(self.head)
            check_model(head.made_by, model, what="The head")
            calibrated = head.standardised or (
                self.standardised is not False and "calibration" in head.made_by
            )
            self.calibration_ = self._calibration(model) if calibrated else None
            if one_by_one and self.calibration_ is not None and not head.standardised:
                head = standardise(head, self.calibration_)
        else:
            calibration = self._calibration(model)
            self.rule_, self.why_ = self._chosen_rule(calibration)
            can_be = self.standardised
            if can_be is None:
                by_default = load_preset(self.preset).standardised and self.rule_.standardised
                can_be = by_default and calibration is not None
            self.calibration_ = calibration if can_be else None
            settings = {
                name: self._embeddings(value) if name in _EMBEDDING_SETTINGS else value
                for name, value in (self.settings or {}).items()
            }
            of_words = None
            if labels:
                of_words = build_bank(
                    labels,
                    model,
                    settings=self.prompts,
                    preset=self.preset,
                    cache=cache,
                    drifts=bool(self.rule_.needs & NOISY_PROMPTS),
                    progress=self.progress,
                )
                self.unclear_ = describe_unclear(of_words.labels, of_words.prototypes, model)
                if self.unclear_:
                    warnings.warn(
                        in_one_sentence(self.unclear_, model), UnclearWordWarning, stacklevel=2
                    )
            if examples and of_words and calibration and self.rule_.name == _ANCHOR:
                # Words are anchored, what is learnt from examples is not.
                chosen = {**calibration.settings.get(_ANCHOR, {}), **settings}
                how = {k: float(str(v)) for k, v in chosen.items() if k in ("weight", "sharpness")}
                prototypes = anchored(of_words.prototypes, calibration, **how)
                of_words = replace(
                    of_words, prototypes=prototypes, made_by={**of_words.made_by, **how}
                )
                settings["weight"] = 0.0
            bank = with_examples(of_words, examples, model, calibration, one_by_one=one_by_one)
            compiled = partial(
                compile_head,
                rule=self.rule_,
                values=settings,
                backbone=model,
                preset=self.preset,
                cache=cache,
                calibration=calibration,
                standardised=can_be and (one_by_one or self.standardised is True),
            )
            head = compiled(bank)
            if examples and of_words and Needs.TEXT in self.rule_.needs:
                unchanged = compiled(of_words).weights == head.weights[: len(of_words.labels)]
                if unchanged.all():
                    raise UsageError(
                        f"The rule {self.rule_.name!r} makes prototypes of its own, so it cannot "
                        "learn from examples; use another rule"
                    )
        self.head_: Head = head
        self.classes_ = np.array(head.labels)
        return self

    def embed(self, recordings: Iterable[Recording]) -> Iterator[Embedded]:
        """Yield the window embeddings of each recording, in order."""
        return self._fitted().embedder_.embed(recordings)

    def classify(self, X: Recordings = None, *, embeddings: RowsLike = None) -> Iterator[Result]:
        """Yield one result per recording, in order; a bad recording has its error in it.

        Here and below `embeddings` takes the place of recordings: one unit row of this model for
        each (`embed`). Their results are named "0", "1" and so on.
        """
        head = self._fitted().head_
        if embeddings is not None:
            if X is not None:
                raise UsageError("Give recordings or embeddings, not both")
            if np.size(embeddings):
                rows = matrix(embeddings, what="embeddings")
                yield from score_embeddings(head, [str(n) for n in range(len(rows))], rows)
            return
        if X is None:
            raise UsageError("Give recordings, or embeddings=... of recordings")
        total = len(X) if isinstance(X, Sized) else None
        with progress_bar("Embedding", total, show=bool(self.progress)) as advance:
            for block in self.embedder_.start().embed(_several(X)):
                rows = block.embeddings()
                scores = head.scores(rows) if len(rows) else np.zeros((0, len(head.labels)))
                yield from results_of(
                    head.labels, block.sources, scores, block.seconds, block.errors
                )
                advance(len(block))

    def predict(self, X: Recordings = None, *, embeddings: RowsLike = None) -> NDArray[np.str_]:
        """Return the best label of each recording."""
        if self.threshold is not None:
            raise UsageError(
                "predict returns one label per recording and takes no threshold; "
                "use predict_labels for all labels above it"
            )
        if len(self._fitted().head_.labels) == 1:
            raise UsageError(
                f"One label ({self.head_.labels[0]!r}) leaves nothing to choose between; name "
                "another sound, or set a threshold and ask predict_labels whether it is present"
            )
        rows = self.scores(X, embeddings=embeddings)
        return self.classes_[np.argmax(rows, axis=1)]

    def predict_labels(
        self, X: Recordings = None, *, embeddings: RowsLike = None
    ) -> list[list[str]]:
        """Return the labels of each recording whose score reaches the threshold, best first."""
        if self.threshold is None:
            raise UsageError("predict_labels needs a threshold: Classifier(..., threshold=...)")
        rows = self.scores(X, embeddings=embeddings)
        return [Result("", self.head_.labels, row).above(self.threshold) for row in rows]

    def scores(self, X: Recordings = None, *, embeddings: RowsLike = None) -> Scores:
        """Return the n x C scores of n recordings; a bad recording raises its error."""
        rows = []
        for result in self.classify(X, embeddings=embeddings):
            if result.scores is None:
                raise AudioError(result.error)
            rows.append(result.scores)
        return np.stack(rows) if rows else np.zeros((0, len(self.head_.labels)))

    def decision_function(self, X: Recordings = None, *, embeddings: RowsLike = None) -> Scores:
        """Return the scores, under the name that scikit-learn uses."""
        return self.scores(X, embeddings=embeddings)

    def score(self, X: Iterable[Recording], y: Sequence[str]) -> float:
        """Return the accuracy of `predict` against the true labels."""
        return float(np.mean(self.predict(X) == np.asarray(y)))

    def detector(
        self,
        watch: "WatchList | None" = None,
        settings: "Detection | None" = None,
        *,
        one_label: bool = False,
    ) -> "Detector":
        """Return the detector of events: of the labels, or of a watch list in their place.

        With `one_label` its scores are those of `classify`, for the one label of a clip or window
        (`Detector.label_or_none`), and not standard deviations, in which events are judged.
        """
        from driftscore.detector import Detector
        from driftscore.events.watchlist import NONE, WatchList

        has_head = self.head is not None
        if watch is None:
            # A compiled head knows no words but its own.
            examples = self.examples_
            labels = self._fitted().head_.labels if has_head else self._check(examples)
            new = [] if has_head else [name for name in examples.positive if name not in labels]
            watch = WatchList.of((*labels, *new), (NONE,) if has_head else ()).without_words(new)
        words = copy.copy(self)
        if not has_head:
            words.set_params(labels=(*watch.texts, *watch.competing))
            words.examples_ = self._examples_of(watch)
        head = words._compile(one_by_one=not one_label).head_
        self.embedder_ = words.embedder_
        if not has_head:
            self.rule_, self.why_ = words.rule_, words.why_
        return Detector(self.embedder_, head, watch, settings, words.calibration_)

    def events(
        self,
        recording: Recording,
        watch: "WatchList | None" = None,
        settings: "Detection | None" = None,
    ) -> "Iterator[Event]":
        """Yield the events of a recording: which label is present, from when to when.

        To search many recordings, make a `detector` once.
        """
        detector = self.detector(watch, settings)
        with seconds_bar("Searching", [recording], show=self.progress) as done:
            yield from detector.events(recording, seconds=done)

    def texts(self) -> list[str]:
        """Return the exact texts that the head is made of; no model is loaded.

        The rule "auto" then stands for that of a model without a calibration.
        """
        labels = self._check()
        calibration = self.calibration if isinstance(self.calibration, Calibration) else None
        rule, preset = self._chosen_rule(calibration)[0], load_preset(self.preset)
        noisy = bool(rule.needs & NOISY_PROMPTS)
        bank = compose(labels, self.prompts or preset.prompts, noisy=noisy)
        settings = {**preset.rules.get(rule.name, {}), **(self.settings or {})}
        return list(dict.fromkeys([*bank.texts, *rule.further_texts(labels, settings)]))

    def explain(self, word: str) -> Explanation:
        """Explain what the model takes a word for, and which labels it can be confused with."""
        others = (label for label in self.labels or () if words(label) != words(word))
        labels = check_labels([word, *others])
        model = self._model()
        texts = compose(labels, self.prompts or load_preset(self.preset).prompts, noisy=False)
        bank = encode_bank(texts, TextEncoder(model, cache=self.embedder_.text_cache))
        return explain(labels[0], bank.labels, bank.prototypes, model, self._calibration(model))

    def compared_with(self, rule: str | Compile | RuleModule) -> tuple["Classifier", "Classifier"]:
        """Return two fitted classifiers, with this rule and with another, that share the embedder.

        Each gets the settings that its rule has; a setting that neither has stays with the first,
        which refuses it.
        """
        if self.head is not None:
            raise UsageError("A compiled head has no other rule; give the labels instead of a head")
        own, other = _settings_of(self.rule), _settings_of(rule)
        settings = dict(self.settings or {})
        chosen = {n: v for n, v in settings.items() if n in own or n not in other}
        first = copy.copy(self).set_params(settings=chosen)._fitted()
        chosen = {n: v for n, v in settings.items() if n in other}
        return first, copy.copy(first).set_params(rule=rule, settings=chosen)._fitted()

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Return the constructor's arguments."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: object) -> Self:
        """Change constructor arguments; the head is compiled again when it is next used.

        The model stays loaded unless `backbone` itself is changed.
        """
        for name, value in params.items():
            if name not in self.get_params():
                raise unknown("parameter of Classifier", name, self.get_params())
            setattr(self, name, value)
        for fitted in ("head_", "classes_", *(["embedder_"] if "backbone" in params else [])):
            self.__dict__.pop(fitted, None)
        return self

    def __sklearn_clone__(self) -> Self:
        """Share a loaded model between clones: it is never changed, and may be large."""
        return type(self)(**self.get_params())  # type: ignore[arg-type]

    def __sklearn_tags__(self) -> "Tags":
        """Tell scikit-learn that this is a classifier of arbitrary objects."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=False),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(one_d_array=True, string=True),
            requires_fit=False,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "head_")

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.get_params().items() if v is not None)
        return f"{type(self).__name__}({shown})"

    def _fitted(self) -> "Classifier":
        if hasattr(self, "head_"):
            return self
        return self._compile(one_by_one=self.threshold is not None)

    def _learn(self, recordings: Iterable[Recording] | Matrix, labels: Iterable[str]) -> Examples:
        """Return the examples of recordings or embeddings; embeddings are kept in the cache."""
        if isinstance(recordings, np.ndarray) and recordings.ndim == 2:
            rows = unit(matrix(recordings, what="examples"), what="examples")
            if rows.shape[1] != self._model().dim:
                raise MismatchError(
                    f"The examples have {rows.shape[1]} dimensions, the model {self._model().dim}: "
                    "they were embedded by another model"
                )
            examples = [
                Example(f"row {number}", row, hashlib.sha256(row.tobytes()).hexdigest())
                for number, row in enumerate(rows)
            ]
        else:
            with Embedder(self._model(), audio_cache=True) as cached:
                examples = embed_examples(cached.embed, _several(recordings))
        names = [str(label) for label in labels]
        if len(names) != len(examples):
            raise UsageError(f"There are {len(examples)} recordings and {len(names)} labels")
        groups: dict[str, list[Example]] = {name: [] for name in names}
        for name, example in zip(names, examples, strict=True):
            groups[name].append(example)
        negative = groups.pop(NOT, [])
        learnt = Examples(groups, {NOT: negative} if negative else {})
        model = self._model()
        calibration = self._calibration(model)
        if calibration is None:
            warnings.warn(
                f"{model.name} has no calibration: examples are compared with "
                "each other instead of with other sounds; `driftscore calibrate` makes one",
                stacklevel=3,
            )
        for sentence in learnt.unlike(calibration):
            warnings.warn(sentence, stacklevel=3)
        return learnt

    def _examples_of(self, watch: "WatchList") -> Examples:
        """Return the examples of each word of a watch list: its own, and those of `fit`."""
        learnt = []
        for files in watch.example_files():
            pairs = [(file, name) for name, own in files.items() for file in own]
            paths, names = zip(*pairs, strict=True) if pairs else ((), ())
            learnt.append(self._learn(paths, names) if pairs else Examples())
        own, against = learnt
        away = {**against.positive, **against.negative}
        examples = self.examples_.merged(Examples(own.positive, away))
        words = [(word, label.name) for label in watch.labels for word in label.words]
        positive = {word: examples.positive.get(name, ()) for word, name in words}
        negative = {word: examples.negative.get(name, ()) for word, name in words}
        return Examples(positive, {**negative, NOT: examples.negative.get(NOT, ())})

    def _chosen_rule(self, calibration: Calibration | None) -> tuple[Rule, str]:
        """Return the rule, and why it was chosen."""
        rule = self.rule
        if isinstance(rule, str) and rule == AUTO:
            preset = load_preset(self.preset)
            if preset.rule != AUTO:
                return find_rule(preset.rule), f"the rule of the preset {preset.name}"
            name, why = choose_rule(calibration)
            return find_rule(name), why
        return find_rule(rule), "as asked for"

    def _model(self) -> Backbone:
        """Return the model, loaded once."""
        if not hasattr(self, "embedder_"):
            backbone = self.backbone
            self.embedder_ = backbone if isinstance(backbone, Embedder) else Embedder(backbone)
        return self.embedder_.backbone

    def _calibration(self, backbone: Backbone) -> Calibration | None:
        """Return the calibration that was given, or the one that comes with the model."""
        calibration = self.calibration
        if isinstance(calibration, Calibration):
            check_model(calibration.made_by, backbone, what="The calibration")
            return calibration
        path = backbone.calibration_file if calibration == AUTO else calibration
        return None if path is None else Calibration.load(path, backbone)

    def _embeddings(self, value: object) -> Matrix:
        """Return rows of embeddings: an array, stored ones, or recordings to embed."""
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, (str, PathLike)) and is_stored(value):
            stored = open_embeddings(value)
            stored.check(self.embedder_.backbone, what=str(value))
            return stored.read()
        recordings = _several(cast(Iterable[Recording], value))
        return np.stack([embedded.embedding for embedded in self.embedder_.embed(recordings)])

    def _check(self, examples: Examples | None = None) -> tuple[str, ...]:
        """Return the labels; what is wrong with an argument is found before a model is loaded."""
        threshold = self.threshold
        if not (threshold is None or (isinstance(threshold, (int, float)) and isfinite(threshold))):
            raise UsageError(f"threshold must be a number, got {threshold!r}")
        load_preset(self.preset)
        if self.head is not None:
            return ()
        if self.labels is None or (examples and not tuple(self.labels)):
            if examples and any(examples.positive.values()):
                return ()
            raise UsageError("No labels given; name the sounds to look for, or give a head")
        labels = check_labels(self.labels)
        check_words(labels)
        if self.rule != AUTO:  # that rule is known only when the model is loaded
            check_settings(find_rule(self.rule), self.settings or {})
        return labels


def _several(recordings: Iterable[Recording]) -> Iterable[Recording]:
    """Return recordings; one path is a common slip for a list of one."""
    if isinstance(recordings, (str, bytes, PathLike)):
        raise UsageError(f"Expected a list of recordings; did you mean [{recordings!r}]?")
    return recordings


def _settings_of(rule: str | Compile | RuleModule) -> tuple[str, ...]:
    """Return the settings that a rule has; those of "auto" are not known before it is chosen."""
    return () if isinstance(rule, str) and rule == AUTO else tuple(find_rule(rule).settings)
