"""Options of data sources: dataclasses from which the flags of ``ncfbench prepare`` are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from ncfbench.errors import UsageError
from ncfbench.settings import setting_field, setting_of

MAX_FEATURES = 2**16  # of an item or a user
HOLD_OUTS = {
    "items": "items at random",
    "newest-items": "the newest items",
    "links": "some links of each user, at random",
    "last": "each user's newest link",
    "time": "all links from a time on",
}
"""Hold-outs, each with what it keeps from training in words."""
USUAL_LSA = 300
"""Features by LSA of real texts, where these have more."""
DENSE = "Dense features"
"""Panel of the options of dense features."""
NEED_TIMES = ("newest-items", "last", "time")


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
        omits_default: it is not stored where it switches nothing on.
        more: as for :class:`ncfbench.settings.Setting`, such as the range and the choices.
    """
    made = setting_field(None if default is MISSING else default, help_, **more)
    stored = {"is_stored": is_stored, "omits_default": omits_default}
    return field(default=default, metadata={**made.metadata, **stored})


def lsa_option(default: int | None) -> Any:
    """Declare the number of features by LSA."""
    return option(
        default,
        "Derive this many dense features of an item from its text: a truncated singular value"
        " decomposition of TF-IDF, fitted to training items. For --encoder mlp, and added to text"
        " encoders unless --set features=ignore. 0: none.",
        shown="none" if default is None else "",
        at_least=0,
        at_most=MAX_FEATURES,
        panel=DENSE,
        omits_default=True,
    )


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Options of every source. Each field is declared with :func:`option`.

    Raises:
        UsageError: a value of a wrong type or outside its range.
    """

    fixed: ClassVar[frozenset[str]] = frozenset()
    """Fields without a flag, which Python alone can give."""
    lsa: int | None = lsa_option(None)
    hold_out: str | None = option(
        None,
        "What is held out: items, at random, with all their links; newest-items, those whose first"
        " link is newest; links, a share of each user's; last, each user's newest link, and the one"
        " before it for validation; time, all links from a time on.",
        shown="items",
        choices=tuple(HOLD_OUTS),
        omits_default=True,
    )
    test_fraction: float = option(
        0.2,
        "Share held out for the test: of the items, with all their links; of each user's links; or"
        " of all links, the newest. Not for --hold-out last.",
        at_least=0,
        below=1,
    )
    validation_fraction: float = option(
        0.1, "Share of the rest held out for validation; 0 for none.", at_least=0, below=1
    )

    def __post_init__(self) -> None:
        for declaration in fields(self):
            if (value := getattr(self, declaration.name)) is not None:
                setting = setting_of(declaration)
                converted = setting.convert(value)
                setting.check(converted)
                object.__setattr__(self, declaration.name, converted)

    def stored(self) -> dict[str, Any]:
        """Return the options that decide the content, as a manifest has them; to hold out items, as
        usual, needs no word.
        """
        stored: dict[str, Any] = {"split_seed": 0}  # was an option, and fingerprints cover it
        for declaration in _ordered(type(self)):
            value, traits = getattr(self, declaration.name), declaration.metadata
            is_omitted = traits["omits_default"] and value in (None, 0, "items")
            if traits["is_stored"] and not is_omitted:
                stored[declaration.name] = list(value) if isinstance(value, tuple) else value
        return stored


PUBLISHED = frozenset(
    {"test_fraction", "validation_fraction", "max_length", "min_count", "tokenizer", "embed"}
)
"""Fields that published data sets without kept results have at their default."""


@dataclass(frozen=True, kw_only=True)
class TextOptions(SourceOptions):
    """Options of sources of real texts: what becomes a token, and which are kept."""

    tokenizer: Path | None = option(
        None,
        "Folder of a pretrained model whose tokenizer makes the tokens: for --encoder bert.",
        shown="words",
        is_stored=False,
    )
    max_length: int = option(300, "Words kept of a text.", at_least=1)
    min_count: int = option(1, "Leave out words that occur less often than this.", at_least=1)
    embed: Path | None = option(
        None,
        "Folder of a pretrained model of BERT's kind, such as MiniLM: derive dense features of an"
        " item as the model's vector of its text, cut to --max-length of its own word pieces.",
        shown="none",
        is_stored=False,
        panel=DENSE,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokenizer is None:
            return
        if self.min_count != 1:
            raise UsageError(
                "--min-count and --tokenizer exclude each other: the vocabulary is the model's."
            )
        if self.max_length < 3:
            raise UsageError(
                f"max_length = {self.max_length}: with --tokenizer it must be at least 3, since two"
                " pieces begin and end each text."
            )

    def stored(self) -> dict[str, Any]:
        """Return the options that decide the content; a checkpoint by its digest."""
        from ncfbench.data.assets.checkpoint import embedding_digest

        # A limit of the vocabulary was an option, and fingerprints cover it.
        stored = super().stored() | {"vocabulary_size": None}
        if self.embed is not None:
            stored["embed"] = embedding_digest(self.embed)
        return stored

    def model_origin(self) -> dict[str, Any]:
        """Return what the manifest says about models: the tokenizer, None where tokens are words,
        and the name of the checkpoint that embeds the texts, if any.
        """
        from ncfbench.data.assets.pieces import tokenizer_digest

        origin: dict[str, Any] = {"tokenizer": None}
        if self.tokenizer is not None:
            digest = tokenizer_digest(self.tokenizer)
            origin = {"tokenizer": {"name": self.tokenizer.name, "sha256": digest}}
        return origin | ({"embed": self.embed.name} if self.embed is not None else {})

    def pieces_of_checkpoint(self) -> TextOptions:
        """Return the options with which a source's texts are the pieces of the checkpoint that
        embeds them, at most as many as it knows positions.
        """
        from ncfbench.data.assets.checkpoint import Architecture

        assert self.embed is not None
        length = min(self.max_length, Architecture.read(self.embed).positions)
        plain = replace(self, min_count=1, embed=None, lsa=None)
        return replace(plain, tokenizer=self.embed, max_length=length)


def flags_of(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored options by the names of today's flags: ``split`` was one of ``custom``."""
    held_out = {"random": "items", "time": "newest-items", "column": None}
    return {
        "hold_out" if name == "split" else name: held_out[value] if name == "split" else value
        for name, value in stored.items()
    }


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
    """Return the fields of options that have a flag, a source's own before those that it shares."""
    return [option for option in _ordered(options) if option.name not in options.fixed]


def _ordered(options: type[SourceOptions]) -> list[Field[Any]]:
    names = [name for base in options.__mro__ for name in vars(base).get("__annotations__", ())]
    return sorted(fields(options), key=lambda declaration: names.index(declaration.name))
