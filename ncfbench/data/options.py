"""Options of data sources: dataclasses from which the flags of ``ncfbench prepare`` are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from ncfbench.errors import UsageError
from ncfbench.settings import setting_field, setting_of


def option(
    default: Any = MISSING,
    help_: str = "",
    *,
    is_stored: bool = True,
    omits_default: bool = False,
    **more: Any,
) -> Any:
    """Declare a field of a source's options; one without a default is required.

    Args:
        is_stored: it decides the prepared content, and stands in the manifest; False for options
            that say where the files are or how to read them.
        omits_default: its default is not stored: for an option that switches something on.
        more: as for :class:`ncfbench.settings.Setting`, such as the range and the choices.
    """
    made = setting_field(None if default is MISSING else default, help_, **more)
    stored = {"is_stored": is_stored, "omits_default": omits_default}
    return field(default=default, metadata={**made.metadata, **stored})


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Options of a source. Each field is declared with :func:`option`.

    Raises:
        UsageError: a value of a wrong type or outside its range.
    """

    def __post_init__(self) -> None:
        for declaration in fields(self):
            if (value := getattr(self, declaration.name)) is not None:
                setting = setting_of(declaration)
                converted = setting.convert(value)
                setting.check(converted)
                object.__setattr__(self, declaration.name, converted)

    def stored(self) -> dict[str, Any]:
        """Return the options that decide the content, as a manifest has them."""
        stored = {}
        for declaration in declared(type(self)):
            value = getattr(self, declaration.name)
            is_omitted = declaration.metadata["omits_default"] and value == declaration.default
            if declaration.metadata["is_stored"] and not is_omitted:
                stored[declaration.name] = list(value) if isinstance(value, tuple) else value
        return stored


@dataclass(frozen=True, kw_only=True)
class SplitOptions(SourceOptions):
    """Options of the split into training, validation and test items."""

    test_fraction: float = option(
        0.2, "Share of the items held out for the test, with all their links.", at_least=0, below=1
    )
    validation_fraction: float = option(
        0.1,
        "Share of the remaining items held out for validation; 0 for none.",
        at_least=0,
        below=1,
    )
    split_seed: int = option(0, "Seed of the choice of held-out items.", at_least=0)


@dataclass(frozen=True, kw_only=True)
class TextOptions(SplitOptions):
    """Options of sources of real texts: what becomes a token, and which are kept."""

    tokenizer: Path | None = option(
        None,
        "Folder of a pretrained model whose tokenizer makes the tokens: for --encoder bert.",
        shown="words",
        is_stored=False,
    )
    max_length: int = option(300, "Words kept of a text.", at_least=1)
    min_count: int = option(1, "Leave out words that occur less often than this.", at_least=1)
    vocabulary_size: int | None = option(
        None, "Keep only this many words, the most frequent.", shown="all", at_least=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokenizer is None:
            return
        if self.min_count != 1 or self.vocabulary_size is not None:
            flag = "--vocabulary-size" if self.min_count == 1 else "--min-count"
            raise UsageError(
                f"{flag} and --tokenizer exclude each other: the vocabulary is the model's."
            )
        if self.max_length < 3:
            raise UsageError(
                f"max_length = {self.max_length}: with --tokenizer it must be at least 3, since two"
                " pieces begin and end each text."
            )

    def tokenizer_origin(self) -> dict[str, Any]:
        """Return what the manifest says about the tokenizer: None where tokens are words."""
        from ncfbench.data.assets.pieces import tokenizer_digest

        if self.tokenizer is None:
            return {"tokenizer": None}
        digest = tokenizer_digest(self.tokenizer)
        return {"tokenizer": {"name": self.tokenizer.name, "sha256": digest}}


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line that give options these values, but for missing ones."""
    words = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value not in (None, [], ()):
            words += [f"--{flag}", ",".join(value) if isinstance(value, list) else str(value)]
    return words


def declared(options: type[SourceOptions]) -> list[Field[Any]]:
    """Return the fields of options, a source's own before those that it shares."""
    names = [name for base in options.__mro__ for name in vars(base).get("__annotations__", ())]
    return sorted(fields(options), key=lambda declaration: names.index(declaration.name))
