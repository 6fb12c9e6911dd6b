"""What scikit-learn expects of an estimator, without needing scikit-learn.

A constructor only stores its arguments under their names; `fit` sets attributes that end in an
underscore.
"""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Self, cast

from driftscore.deprecated import with_deprecated

if TYPE_CHECKING:
    from sklearn.utils import Tags


class Estimator:
    """Parameters by name, clones that share a loaded model, and the tags of a classifier."""

    fitted_attributes: ClassVar[tuple[str, ...]] = ()
    """What `fit` sets, and a change of a parameter removes."""
    settings: Mapping[str, object] | None

    @classmethod
    def parameters(cls) -> tuple[str, ...]:
        """Return the names of the constructor's arguments."""
        known = inspect.signature(cls).parameters.values()
        return tuple(p.name for p in known if p.kind is not inspect.Parameter.VAR_KEYWORD)

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Return the constructor's arguments."""
        return {name: getattr(self, name) for name in self.parameters()}

    def set_params(self, **params: object) -> Self:
        """Change constructor arguments; the head is compiled again when it is next used.

        The model stays loaded unless `backbone` itself is changed.
        """
        deprecated = {name: params.pop(name) for name in params.keys() - set(self.parameters())}
        if deprecated:
            settings = cast("Mapping[str, object] | None", params.get("settings", self.settings))
            params["settings"] = with_deprecated(settings, deprecated, self.parameters)
        for name, value in params.items():
            setattr(self, name, value)
        model = ["embedder_"] if "backbone" in params else []
        for fitted in (*self.fitted_attributes, *model):
            self.__dict__.pop(fitted, None)
        return self

    def __sklearn_clone__(self) -> Self:
        """Share a loaded model between clones: it is never changed, and may be large."""
        return type(self)(**self.get_params())

    def __sklearn_tags__(self) -> "Tags":
        """Tell scikit-learn that this is a classifier of arbitrary objects."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=False),
            transformer_tags=None,
            regressor_tags=None,
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(one_d_array=True, string=True),
            requires_fit=False,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "head_")

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.get_params().items() if v is not None)
        return f"{type(self).__name__}({shown})"
