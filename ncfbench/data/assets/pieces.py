"""Word pieces: the tokens of a pretrained model, by its own tokenizer. A token's id in the data set
is its id in the model; id 0 must be padding, as in BERT and its descendants.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from ncfbench.errors import DataError, UsageError, install_command, reason
from ncfbench.storage import tables

FILES = ("tokenizer.json", "vocab.txt")  # the first one that is there is read
PADDING, BEGIN, END = "[PAD]", "[CLS]", "[SEP]"


class Pieces:
    """The tokenizer in a pretrained model's folder, and how many pieces are kept of a text; a
    DataError if it is missing, damaged or none of BERT's kind.
    """

    def __init__(self, folder: Path, max_length: int) -> None:
        require_tokenizers("--tokenizer")
        import tokenizers

        path, is_lowercase = tokenizer_file(folder), _is_lowercase(folder)
        try:
            if path.name == "vocab.txt":
                self._tokenizer = tokenizers.BertWordPieceTokenizer(
                    str(path), lowercase=is_lowercase
                )
            else:
                self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises Exception itself
            raise DataError(f"{path} is damaged: {reason(error)}.") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.max_length = max_length
        self.ids: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        ordered = sorted(self.ids, key=self.ids.__getitem__)
        is_dense = [self.ids[piece] for piece in ordered] == list(range(len(ordered)))
        if not is_dense or ordered[0] != PADDING or not {BEGIN, END} <= self.ids.keys():
            raise DataError(
                f"The tokenizer in {folder} is none of BERT's kind: ids must leave out no number,"
                f" {PADDING} must have the id 0, and {BEGIN} and {END} an id."
            )
        self.words = tuple(ordered[1:])  # the pieces of the ids 1, 2, ...

    def __call__(self, text: str) -> list[str]:
        """Return the pieces of a text, without the ones that begin and end it."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).tokens)

    def whole(self, pieces: Iterable[str]) -> list[str]:
        """Return pieces cut to the length, with those that begin and end a text; none of none."""
        kept = list(islice(pieces, self.max_length - 2))
        return [BEGIN, *kept, END] if kept else []


def require_tokenizers(flag: str) -> None:
    """Refuse a flag that needs the package ``tokenizers`` where it is not installed."""
    if importlib.util.find_spec("tokenizers") is None:
        raise UsageError(
            f"{flag} needs the package tokenizers. Install it: {install_command('bert')}"
        )


def tokenizer_file(folder: Path) -> Path:
    """Return the file of a model's tokenizer; a DataError where there is none."""
    for name in FILES:
        if (folder / name).is_file():
            return folder / name
    raise DataError(
        f"{folder} holds no tokenizer: neither {' nor '.join(FILES)} is there. Name the folder of a"
        " pretrained model."
    )


def tokenizer_digest(folder: Path) -> str:
    """Return the SHA-256 (hexadecimal) of a model's tokenizer."""
    path = tokenizer_file(folder)
    case = str(_is_lowercase(folder)) if path.name == "vocab.txt" else ""
    return hashlib.sha256(path.read_bytes() + case.encode()).hexdigest()


def read_settings(path: Path, kind: type) -> Any:
    """Return the JSON object or list of a model's file, empty where there is no file."""
    settings = tables.read_json(path) if path.exists() else kind()
    if not isinstance(settings, kind):
        name = "object" if kind is dict else "list"
        raise DataError(f"{path} is damaged: it must hold a JSON {name}.")
    return settings


def _is_lowercase(folder: Path) -> bool:
    """Return whether texts are lower-cased before a ``vocab.txt`` splits them."""
    return bool(read_settings(folder / "tokenizer_config.json", dict).get("do_lower_case", True))
