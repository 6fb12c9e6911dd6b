"""An extension of griffe: read the sections of our docstrings, which are underlined or not.

Parameters          becomes      Parameters:
----------                           labels: the sounds to look for
    labels: the sounds to look for
"""

import re

import griffe

_UNDERLINED = re.compile(r"^(Parameters|Attributes|Returns|Yields)\n-{3,}\n", re.MULTILINE)


class Sections(griffe.Extension):
    """Write underlined headings as those of Google's style, which the handler reads."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Change the docstring of one object."""
        if obj.docstring:
            obj.docstring.value = _UNDERLINED.sub(r"\1:\n", obj.docstring.value)
