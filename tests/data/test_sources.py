"""Sources of data: one entry each, flags from the dataclass of options, a source of one's own."""

from dataclasses import MISSING, dataclass
from pathlib import Path

import numpy as np
import pytest
from support.cli import check, invoke
from support.training import content_of
from typer.main import get_command

from ncfbench.data import prepare, sources, store
from ncfbench.data.hold_out import split_items
from ncfbench.data.options import TextOptions, declared, option
from ncfbench.data.sources import SOURCES, Preparation, Source, synthetic
from ncfbench.data.text import Corpus
from ncfbench.errors import UsageError
from ncfbench.settings import setting_of

# A source of one's own: two users of each colour, who like the items of that colour.


@dataclass(frozen=True, kw_only=True)
class Options(TextOptions):
    items: int = option(6, "Items of each colour.", at_least=2)
    colours: tuple[str, ...] = option(("red", "blue"), "Colours.", choices=("red", "blue", "green"))
    bright: bool = option(False, "Add a word to each text.", panel="Texts")


def plan(options, *, say, progress):
    def read():
        corpus, links = Corpus(options), []
        for number, colour in enumerate(options.colours):
            for item in range(number * options.items, (number + 1) * options.items):
                corpus.add([colour, *(["bright"] if options.bright else [])])
                links += [(2 * number, item), (2 * number + 1, item)]
        texts, words = corpus.finish()
        ends, split = zip(*links, strict=True), split_items(len(corpus), options)
        n_users = 2 * len(options.colours)
        return content_of(*ends, split, n_users, texts=texts, vocabulary=words)

    say("Painting.")
    return Preparation({"files": {}}, options.stored(), read)


@pytest.fixture
def colours(monkeypatch):
    monkeypatch.setitem(SOURCES, "colours", Source(__name__, "Items by colour.", "More."))
    monkeypatch.setattr("typer.testing._get_command", get_command)  # made anew, with the source


@pytest.mark.usefixtures("colours")
def test_a_source_is_a_module_and_an_entry(tmp_path):
    """Flags, help, checks, the command that prepares it again: nothing else has to be touched."""
    check(invoke("prepare", "--help"), 0, "colours", "Items by colour.")
    listed = invoke("prepare", "colours", "--help")
    check(listed, 0, "More.", "--items", "[default: 6]", "[default: red,blue]", "--no-bright")
    check(listed, 0, "Texts", "--test-fraction")
    data = ["--data-dir", tmp_path / "data"]
    words = ["prepare", "colours", "--items", "8", "--colours", "red,green", "--bright", *data]
    check(invoke(*words), 0, "Painting.", "users", "4", "items", "16")
    check(invoke(*words), 0, "Already prepared with these options")
    dataset = store.load(tmp_path / "data", "colours")
    stored = dataset.manifest["options"]
    given = {"items": 8, "colours": ["red", "green"], "bright": True, "max_length": 300}
    assert stored.items() >= (given | {"test_fraction": 0.2, "split_seed": 0}).items()
    assert not {"hold_out", "lsa", "tokenizer", "embed"} & stored.keys()
    again = sources.prepare_command("mine", dataset.manifest)
    assert again.startswith("ncfbench prepare colours --name mine --items 8 --colours red,green")
    assert invoke(*again.split()[1:], *data).exit_code == 0
    mine = store.load(tmp_path / "data", "mine")
    assert mine.fingerprint == dataset.fingerprint
    assert mine.graph.n_links > 0
    check(invoke("prepare", "colours", "--items", "1"), 2, "items = 1: it must be at least 2")
    check(invoke("prepare", "colours", "--colours", "gren"), 2, "did you mean 'green'")
    check(invoke("prepare", "colour"), 2, "No such command", "'colours'")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test_fraction": float("nan")}, "test_fraction = nan"),
        ({"topics": 10**4}, "topics"),
        ({"min_words": 50}, "min_words"),
        ({"users": True}, "users = True is not a whole number"),
        ({"lsa": -1}, "lsa = -1"),
    ],
)
def test_impossible_options_from_python(options, message):
    assert type(synthetic.Options(seed=np.int64(30)).seed) is int
    with pytest.raises(UsageError, match=message):
        synthetic.Options(**options)
    with pytest.raises(UsageError, match="Unknown source 'synthetc'; did you mean 'synthetic'"):
        prepare("synthetc", synthetic.Options(), Path(), say=print)


@pytest.mark.parametrize("name", SOURCES)
def test_flags_are_the_options(name):
    """Each option is a flag with its help and its default; advice names the required ones."""
    text = " ".join(invoke("prepare", name, "--help").stdout.replace("│", " ").split())
    required = []
    for option_field in declared(SOURCES[name].load().Options):
        flag, default = setting_of(option_field), option_field.default
        assert flag.flag in text
        assert flag.help.split()[0] in text
        if isinstance(default, int | float) and not isinstance(default, bool):
            assert f"[default: {default}]" in text
        if default is MISSING or flag.help.startswith("Required"):
            required.append(flag.flag)
    command = sources.how_to_prepare(name).split()
    assert command[:3] == ["ncfbench", "prepare", name]
    assert [word for word in command if word.startswith("--")] == required
