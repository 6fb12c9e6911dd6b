"""Classifier: labels, a rule and an embedder -> the labels of recordings.

It behaves as a scikit-learn estimator (`get_params`, `set_params`, `clone`, `fit`, `predict`,
`decision_function`, `score`) without needing scikit-learn. `fit` learns nothing from audio: it
encodes the labels.
"""

import copy
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from os import PathLike
from typing import Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from driftscore.audio import Recording
from driftscore.backbones import DEFAULT_BACKBONE, Backbone, check_model
from driftscore.bank import build_bank
from driftscore.calibration import Calibration
from driftscore.deprecated import with_deprecated
from driftscore.detector import Detector
from driftscore.embedder import Embedded, EmbeddedBlock, Embedder
from driftscore.embeddings import EmbeddingFile
from driftscore.errors import UsageError
from driftscore.estimator import Estimator
from driftscore.events import Detection, Event
from driftscore.head import Head
from driftscore.progress import progress_bar, seconds_bar
from driftscore.prompts import check_labels, compose
from driftscore.result import Result, ResultBlock
from driftscore.rules import Compile, Rule, RuleModule, choose_rule, compile_rule, find_rule
from driftscore.rules import check_settings as check_rule_settings
from driftscore.scoring import score_blocks
from driftscore.settings import AUTO, DEFAULT_PRESET, Preset, PromptSettings, load_preset
from driftscore.vectors import Matrix, Scores
from driftscore.watchlist import NONE, WatchList

_EMBEDDING_SETTINGS = ("noise", "pool")
"""Settings of rules that may be given as recordings, and are embedded first."""
Item = TypeVar("Item")


class Classifier(Estimator):
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
            {"standardised": False} gives raw scores.
        prompts: how prompts are composed; None for those of the preset.
        preset: the settings of a paper, by name, or the path of a preset file.
        threshold: `predict_labels` reports every label with at least this score, `events` every
            event that reaches it above the label's background.
        head: a compiled head, in place of labels and rule.
        calibration: how noise moves the model's embeddings, by its path or loaded: scores are then
            standardised. None for the one that comes with the model, False for none.
        progress: show progress bars; None means those of texts and of events, and only on a
            terminal or in a notebook.

    """

    rule_: Rule
    why_: str
    """Why this rule was chosen."""
    calibration_: Calibration | None
    """What scores are measured against; None if they are raw."""
    fitted_attributes = ("head_", "classes_")

    def __init__(
        self,
        labels: Iterable[str] | None = None,
        *,
        backbone: str | PathLike[str] | Backbone | Embedder = DEFAULT_BACKBONE,
        rule: str | Compile | RuleModule = AUTO,
        settings: Mapping[str, object] | None = None,
        prompts: PromptSettings | None = None,
        preset: str | PathLike[str] | Preset = DEFAULT_PRESET,
        threshold: float | None = None,
        head: Head | str | PathLike[str] | None = None,
        calibration: Calibration | str | PathLike[str] | Literal[False] | None = None,
        progress: bool | None = None,
        **deprecated: object,
    ) -> None:
        self.labels = tuple(labels) if isinstance(labels, Iterator) else labels
        self.backbone = backbone
        self.rule = rule
        self.settings = with_deprecated(settings, deprecated, self.parameters)
        self.prompts = prompts
        self.preset = preset
        self.threshold = threshold
        self.head = head
        self.calibration = calibration
        self.progress = progress

    def fit(self, X: object = None, y: object = None) -> "Classifier":
        """Load the model and compile the head; X and y are ignored: nothing is learnt."""
        self._check()
        if not hasattr(self, "embedder_"):
            given = self.backbone
            self.embedder_ = given if isinstance(given, Embedder) else Embedder(given)
        self.head_: Head = self._compile()
        if len(self.head_.labels) == 1 and self.threshold is None:
            raise UsageError(
                f"One label ({self.head_.labels[0]!r}) leaves nothing to choose between; name "
                "another sound, or set a threshold to ask whether this one is present"
            )
        self.classes_ = np.array(self.head_.labels)
        return self

    def embed(self, recordings: Iterable[Recording]) -> Iterator[Embedded]:
        """Yield the window embeddings of each recording, in order."""
        return self._fitted().embedder_.embed(recordings)

    def classify(self, recordings: Iterable[Recording]) -> Iterator[Result]:
        """Yield one result per recording, in order; a bad recording has its error in it."""
        for block in self.classify_blocks(recordings):
            yield from block

    def classify_blocks(self, recordings: Iterable[Recording]) -> Iterator[ResultBlock]:
        """Yield the same results in blocks of recordings that are ready together."""
        head = self._fitted().head_
        return score_blocks(head, self._watched(recordings))

    def predict(self, X: Iterable[Recording]) -> NDArray[np.str_]:
        """Return the best label of each recording."""
        if self.threshold is not None:
            raise UsageError(
                "predict returns one label per recording and takes no threshold; "
                "use predict_labels for all labels above it"
            )
        rows = self.scores(X)
        best: NDArray[np.str_] = self.classes_[np.argmax(rows, axis=1)]
        return best

    def predict_labels(self, X: Iterable[Recording]) -> list[list[str]]:
        """Return the labels of each recording whose score reaches the threshold, best first."""
        if self.threshold is None:
            raise UsageError("predict_labels needs a threshold: Classifier(..., threshold=...)")
        rows = self.scores(X)
        return [Result("", self.head_.labels, row).above(self.threshold) for row in rows]

    def scores(self, X: Iterable[Recording]) -> Scores:
        """Return the n x C scores of n recordings; a bad recording raises its error."""
        head = self._fitted().head_
        found = [one.embedding for block in self._watched(_listed(X)) for one in block]
        return head.scores(np.stack(found)) if found else np.zeros((0, len(head.labels)))

    def decision_function(self, X: Iterable[Recording]) -> Scores:
        """Return the scores, under the name that scikit-learn uses."""
        return self.scores(X)

    def score(self, X: Iterable[Recording], y: Sequence[str]) -> float:
        """Return the accuracy of `predict` against the true labels."""
        return float(np.mean(self.predict(X) == np.asarray(y)))

    def detector(
        self, watch: WatchList | None = None, settings: Detection | None = None
    ) -> Detector:
        """Return the detector of events: of the labels, or of a watch list in their place."""
        given = self.head is not None
        if watch is None:
            labels = self._fitted().head_.labels if given else check_labels(self.labels or ())
            # A compiled head knows no words but its own.
            watch = WatchList.of(labels, (NONE,) if given else ())
        words = self
        if not given:
            words = copy.copy(self).set_params(labels=(*watch.texts, *watch.competing))
            words.threshold = 0.0  # one label is enough to look for events
        found = settings or Detection()
        if self.threshold is not None and found.threshold is None:
            found = found.changed(threshold=self.threshold)
        head = words.fit().head_
        self.embedder_ = words.embedder_
        if not given:
            self.rule_, self.why_ = words.rule_, words.why_
        return Detector(self.embedder_, head, watch, found, words.calibration_)

    def events(
        self,
        recording: Recording,
        watch: WatchList | None = None,
        settings: Detection | None = None,
    ) -> Iterator[Event]:
        """Yield the events of a recording: which label is present, from when to when.

        To search many recordings, make a `detector` once.
        """
        detector = self.detector(watch, settings)
        with seconds_bar("Searching", [recording], show=self.progress) as done:
            yield from detector.events(recording, seconds=done)

    def timeline(self, recording: Recording) -> list[Event]:
        """Return the events of a recording; deprecated, use `events`."""
        warnings.warn(
            "Classifier.timeline is deprecated; use Classifier.events",
            DeprecationWarning,
            stacklevel=2,
        )
        return list(self.events(recording))

    def texts(self) -> list[str]:
        """Return the exact texts that the head is made of; no model is loaded.

        The rule "auto" then stands for that of a model without a calibration.
        """
        self._check()
        given = self.calibration if isinstance(self.calibration, Calibration) else None
        rule, preset = self._chosen_rule(given)[0], load_preset(self.preset)
        labels = check_labels(() if self.labels is None else self.labels)
        prompts = self.prompts or preset.prompts
        texts = compose(labels, prompts, noisy=rule.needs.noisy_prompts).texts
        settings = preset.rule_settings(rule.name) | dict(self.settings or {})
        return list(dict.fromkeys([*texts, *rule.further_texts(labels, settings)]))

    def compared_with(self, rule: str | Compile | RuleModule) -> tuple["Classifier", "Classifier"]:
        """Return two fitted classifiers, with this rule and with another, that share the embedder.

        Each gets the settings that its rule has; a setting that neither has stays with the first,
        which refuses it.
        """
        if self.head is not None:
            raise UsageError("A compiled head has no other rule; give the labels instead of a head")
        own, other = _settings_of(self.rule), _settings_of(rule)
        given = dict(self.settings or {})
        kept = {n: v for n, v in given.items() if n in own or n not in other}
        first = Classifier(**{**self.get_params(), "settings": kept}).fit()  # type: ignore[arg-type]
        kept = {n: v for n, v in given.items() if n in other}
        changes = {"rule": rule, "settings": kept, "backbone": first.embedder_}
        return first, Classifier(**{**self.get_params(), **changes}).fit()  # type: ignore[arg-type]

    def _fitted(self) -> "Classifier":
        return self if hasattr(self, "head_") else self.fit()

    def _watched(self, recordings: Iterable[Recording]) -> Iterator[EmbeddedBlock]:
        """Embed recordings; with `progress=True` show how far it is."""
        total = len(recordings) if isinstance(recordings, Sized) else None
        with progress_bar("Embedding", total, show=bool(self.progress)) as advance:
            for block in self._fitted().embedder_.blocks(recordings):
                yield block
                advance(len(block))

    def _compile(self) -> Head:
        """Return the head that was given, or compile one from the labels and the rule."""
        backbone = self.embedder_.backbone
        if self.head is not None:
            head = self.head if isinstance(self.head, Head) else Head.load(self.head)
            check_model(head.made_by, backbone, what="The head")
            self.calibration_ = self._calibration(backbone) if head.standardised else None
            return head
        calibration = self._calibration(backbone)
        self.rule_, self.why_ = self._chosen_rule(calibration)
        settings = {
            name: self._embeddings(value) if name in _EMBEDDING_SETTINGS else value
            for name, value in (self.settings or {}).items()
        }
        standardised = settings.pop(
            "standardised",
            load_preset(self.preset).standardised
            and self.rule_.standardised
            and calibration is not None,
        )
        self.calibration_ = calibration if standardised else None
        cache = self.embedder_.text_cache
        bank = build_bank(
            check_labels(() if self.labels is None else self.labels),
            backbone,
            settings=self.prompts,
            preset=self.preset,
            cache=cache,
            drifts=self.rule_.needs.noisy_prompts,
            progress=self.progress,
        )
        return compile_rule(
            self.rule_,
            bank,
            settings,
            backbone=backbone,
            preset=self.preset,
            cache=cache,
            calibration=calibration,
            standardised=bool(standardised),
        )

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

    def _calibration(self, backbone: Backbone) -> Calibration | None:
        """Return the calibration that was given, or the one that comes with the model."""
        given = self.calibration
        if given is None:
            given = backbone.calibration_file
        if given is None or given is False:
            return None
        if isinstance(given, Calibration):
            check_model(given.made_by, backbone, what="The calibration")
            return given
        return Calibration.load(given, backbone)

    def _embeddings(self, value: object) -> Matrix:
        """Return rows of embeddings: given as an array, as an npz, or as recordings to embed."""
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, (str, PathLike)) and str(value).endswith(".npz"):
            content = EmbeddingFile.load(value)
            if not content.files:
                raise UsageError(f"{value} has no clip embeddings (files with audio_embeddings)")
            made_by = {"fingerprint": content.fingerprint, "backbone": content.name}
            check_model(made_by, self.embedder_.backbone, what=str(value))
            return content.audio_rows
        recordings = _listed(cast(Iterable[Recording], value))
        return np.stack([embedded.embedding for embedded in self.embedder_.embed(recordings)])

    def _check(self) -> None:
        """Find what is wrong with the arguments before a model is loaded."""
        if self.threshold is not None and not _is_number(self.threshold):
            raise UsageError(f"threshold must be a number, got {self.threshold!r}")
        load_preset(self.preset)
        if self.head is not None:
            return
        if self.labels is None:
            raise UsageError("No labels given; name the sounds to look for, or give a head")
        check_labels(self.labels)
        if self.rule != AUTO:  # that rule is known only when the model is loaded
            settings = {k: v for k, v in (self.settings or {}).items() if k != "standardised"}
            check_rule_settings(find_rule(self.rule), settings)


def _listed(recordings: Iterable[Item]) -> list[Item]:
    """Return recordings as a list; one path is a common slip for a list of one."""
    if isinstance(recordings, (str, bytes, PathLike)):
        raise UsageError(f"Expected a list of recordings; did you mean [{recordings!r}]?")
    return list(recordings)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _settings_of(rule: str | Compile | RuleModule) -> tuple[str, ...]:
    """Return the settings that a rule has; those of "auto" are not known before it is chosen."""
    named = () if isinstance(rule, str) and rule == AUTO else tuple(find_rule(rule).settings)
    return (*named, "standardised")
