"""CiteULike and MIND from made-up files in the published formats, with quirks of the real ones; and
downloads from a real server on loopback that breaks off, stalls, redirects or sends something else.
"""

import hashlib
import http.server
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli import check, invoke
from support.records import write_run
from support.tables import (
    BEHAVIORS,
    LIBRARY,
    NEWS,
    articles,
    as_csv,
    ids_of,
    mind_files,
    named_links,
    prepare_mind,
    texts_of,
    words_of,
    write_files,
)
from support.tiny_bert import PIECES
from support.training import quiet

from ncfbench import data
from ncfbench.data import store
from ncfbench.data.files import git_blob_id
from ncfbench.data.sources import citeulike, mind, prepare_command
from ncfbench.data.sources.citeulike import CiteULike, Options, OptionsT, read_articles, read_lists
from ncfbench.errors import DataError, VerificationError
from ncfbench.reporting.results import FILE, collect
from ncfbench.storage import tables

RAW = b"""##0
Red &#34;Fish&#34 &amp; chips
for 60 000 caf\xc3\xa9s
##1

##2
a caf\xe9 \xff\xfe dog
old ##2 dog
##3
&lt;i&gt;Old&lt;/i&gt; dog
"""


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path / "source", LIBRARY)


def prepare(folder, tmp_path, kind=Options, name="citeulike", **options):
    """Prepare the files of a folder; return the data set and the messages."""
    said = []
    usual = {"test_fraction": 0.25, "validation_fraction": 0.0, "allow_unverified": True}
    chosen = kind(from_=folder, **(usual | options))
    data.prepare(name, chosen, tmp_path / "data", replace=True, say=said.append)
    return store.load(tmp_path / "data", name), said


def check_content(dataset, links, texts):
    assert [" ".join(words) for words in texts_of(dataset)] == texts
    assert sorted(zip(dataset.users.tolist(), dataset.items.tolist(), strict=True)) == links
    assert dataset.manifest["statistics"]["links"] == len(links)


def test_a_small_library_by_hand(folder, tmp_path):
    """A link that is given twice counts once."""
    texts = ["red fish blue green fish big fish pet", "old dog", "fish dog red dog"]
    texts += ["empty big fish", "new cat cat cat red dog pet"]
    links = [(0, 0), (0, 2), (0, 4), (1, 2), (2, 1), (2, 3)]
    for users, repeated in (("3 0 2 4", False), ("5 0 2 0 4 2", True)):
        (folder / "users.dat").write_text(f"{users}\n1 2\n2 1 3\n")
        dataset, said = prepare(folder, tmp_path, text=("title", "abstract", "tags"))
        check_content(dataset, links, texts)
        assert dataset.manifest["files"]["users.dat"]["verified"] is False
        assert any("2 links twice" in text for text in said) == repeated


def test_options_decide_the_text(folder, tmp_path):
    tags, _ = prepare(folder, tmp_path, text=("tags",), min_count=2, max_length=1)
    counts = [tags.manifest["statistics"][name] for name in ("vocabulary", "words_max")]
    assert [*counts, tags.manifest["statistics"]["items_without_text"]] == [5, 1, 1]
    assert set(tags.manifest["files"]) == {"users.dat", "item-tag.dat", "tags.dat"}
    assert prepare(folder, tmp_path, text=("title",))[0].fingerprint != tags.fingerprint


FOUR = b"2 0 2\n1 1\n2 0 3\n", [(0, 0), (0, 2), (1, 1), (2, 0), (2, 3)]
TWO = b"2 0 1\n1 1\n", [(0, 0), (0, 1), (1, 1)]


@pytest.mark.parametrize(("users", "links"), [FOUR, TWO])
def test_texts_in_full_by_hand(tmp_path, users, links):
    """Four articles, one without text and one in Latin 1; or two more than libraries have."""
    folder = write_files(tmp_path / "source", {"users.dat": users, "rawtext.dat": RAW})
    dataset, said = prepare(folder, tmp_path, OptionsT, "citeulike-t")
    texts = ["red fish chips for 60 000 cafés", "", "a caf dog old 2 dog", "old dog"]
    check_content(dataset, links, texts)
    assert any("has 1 lines" in text and "the first: line 7" in text for text in said)
    assert any("the last 2 are of" in text for text in said) == (len(links) == 3)
    command = prepare_command("citeulike-t", dataset.manifest)
    assert "--from FOLDER --allow-unverified" in command
    assert "test_fraction=0.25, validation_fraction=0.0" in command


def test_word_pieces(folder, tmp_path):
    """Articles and tags as pieces, which the vocabulary of the tokenizer numbers."""
    vocabulary = ("\n".join(PIECES) + "\n").encode()
    model = write_files(tmp_path / "model", {"vocab.txt": vocabulary})
    words = ["prepare", "citeulike", "--from", folder, "--text", "title,tags"]
    words += ["--tokenizer", model, "--data-dir", tmp_path / "data"]
    check(invoke(*words), 4, "is not the published file")
    shown = "Data set citeulike", "published", "16,980", "Fingerprint"
    check(invoke(*words, "--allow-unverified"), 0, *shown)
    dataset = store.load(tmp_path / "data", "citeulike")
    first = [PIECES[token] for token in dataset.texts[0]]
    assert first == ["[CLS]", "red", "fish", *["[UNK]"] * 2, "fish", "[UNK]", "[SEP]"]
    assert dataset.n_words == len(PIECES) - 1
    assert dataset.manifest["tokenizer"]["name"] == "model"


# --- MIND


@pytest.fixture
def clicks(tmp_path):
    return write_files(tmp_path / "clicks", mind_files())


def test_clicks_by_hand(clicks, tmp_path):
    """Users and items are in the order of numbers, whatever that of the lines."""
    manifest, said = prepare_mind(clicks, tmp_path / "d")
    dataset = store.load(tmp_path / "d", "mind")
    texts = {id_: " ".join(words) for id_, words in words_of(dataset).items()}
    assert ids_of(dataset.user_ids) == ["U3", "U20"]
    assert ids_of(dataset.item_ids) == ["N2", "N10"]
    assert named_links(dataset) == [("U20", "N10"), ("U3", "N10"), ("U3", "N2")]
    assert texts == {"N2": "red fish", "N10": "the old dog an old dog at 10 30"}
    assert manifest["removed"] == {"duplicate_links": 1, "links_to_unknown_news": 1}
    for text, words in zip(said, ("dropped 1 clicks", "2 of 4 news", "at most 1"), strict=False):
        assert words in text
    reversed_ = write_files(tmp_path / "reversed", mind_files(NEWS[::-1], BEHAVIORS[::-1]))
    assert prepare_mind(reversed_, tmp_path / "d")[0]["fingerprint"] == manifest["fingerprint"]


def test_clicks_have_times(tmp_path):
    lines = [
        line.replace("11/12/2019 2:14:46 PM", f"11/{day}/2019 {day}:14:46 AM")
        for line, day in zip(BEHAVIORS, (12, 9, 11, 1, 2), strict=True)
    ]
    source = write_files(tmp_path / "m", mind_files(behaviors=lines))
    manifest, _ = prepare_mind(source, tmp_path / "d", hold_out="time", test_fraction=0.4)
    assert manifest["removed"]["test_links_of_new_users"] == 1, "U20's first click is too late"


def test_the_command_says_what_it_stands_in_for(clicks, tmp_path):
    words = ["prepare", "mind", "--data-dir", tmp_path / "d"]
    check(invoke(*words), 2, "licence", "https://msnews.github.io", "--from FOLDER")
    check(invoke(*words, "--from", clicks), 0, f"{mind.LABEL}.")


def test_reports_know_it_is_not_the_papers_data(clicks, tmp_path):
    runs = tmp_path / "r"
    manifest, _ = prepare_mind(clicks, tmp_path / "d")
    for sampler in ("iid", "ns"):
        write_run(runs, sampler, [9, 5, 3], 200, fingerprint=manifest["fingerprint"])
    tables.write_json(runs / FILE, {manifest["fingerprint"]: manifest})
    assert collect(runs, tmp_path / "d").beside_paper == []
    shares = "test_fraction=0.0, validation_fraction=0.0"
    command = f"prepare mind --name citeulike --from FOLDER  # from Python, with {shares}"
    assert command in prepare_command("citeulike", manifest)


@pytest.mark.real
def test_the_real_sample(shared_data, tmp_path):
    options = mind.Options(from_=shared_data / "mind-sample")
    counts = data.prepare("mind", options, tmp_path, say=quiet)["statistics"]
    # Counted from the two files with a dozen lines of plain Python.
    assert [counts[name] for name in ("users", "items", "links")] == [166, 59, 175]


# --- parsers by property


@given(st.lists(st.lists(st.integers(0, 30), max_size=6), min_size=1, max_size=8).filter(any))
def test_lists_come_back(tmp_path, lists):
    path = tmp_path / "lists.dat"
    path.write_text("".join(f"{len(row)} {' '.join(map(str, row))}\n" for row in lists))
    assert list(read_lists(path, 31, "item")) == lists


TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"))


@given(st.lists(st.tuples(TEXTS, st.text('ab\n",;')), min_size=1))
def test_articles_come_back_whatever_they_hold(tmp_path, rows):
    path = as_csv(tmp_path / "raw-data.csv", articles(rows))
    columns = [read_articles(path, f"raw.{part}") for part in ("title", "abstract")]
    assert list(zip(*columns, strict=True)) == rows


# --- downloads


FILES = {"users.dat": b"2 0 1\n1 2\n" * 500, "tags.dat": b"red\nfish\n"}
NAMES = tuple(FILES)


class Server(http.server.BaseHTTPRequestHandler):
    """Serves :data:`FILES`; ``faults`` says what goes wrong with the next answers for a name."""

    def do_GET(self):
        name = self.path.rsplit("/", 1)[1]
        self.asked.append(name)
        faults, content = self.faults.get(name), FILES[name]
        fault = faults.pop(0) if faults else ""
        self.send_response({"404": 404, "503": 503, "moved": 302}.get(fault, 200))
        self.send_header("Location", f"/elsewhere/{name}")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        parts = {"cut": content[:99], "stalled": content[:10], "wrong": b"x" * len(content)}
        self.wfile.write(parts.get(fault, content))
        if fault == "stalled":
            self.wfile.flush()
            self.over.wait(60)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def source(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between tries
    ids = {
        name: hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        for name, content in FILES.items()
    }
    return CiteULike(Options, "something", "0" * 40, ids)


@pytest.fixture
def site(source, tmp_path, monkeypatch):
    """A server of the files, and downloads from it into a folder."""
    (folder := tmp_path / "files").mkdir()
    state = {"faults": {}, "asked": [], "over": threading.Event()}
    handler = type("Handler", (Server,), state)
    monkeypatch.setattr(citeulike, "TIMEOUT_SECONDS", 0.25)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{running.server_port}/files/"
        monkeypatch.setattr(CiteULike, "url", url)
        download = lambda *names: source.download(folder, names)  # noqa: E731
        yield SimpleNamespace(source=source, folder=folder, download=download, **state)
        state["over"].set()
        running.shutdown()


def test_what_comes_is_verified_and_what_is_there_is_kept(site):
    site.download(*NAMES)
    assert {path.name: path.read_bytes() for path in site.folder.iterdir()} == FILES
    site.download(*NAMES)
    assert sorted(site.asked) == sorted(NAMES)
    (site.folder / "tags.dat").write_text("damaged")
    site.download(*NAMES)
    assert (site.folder / "tags.dat").read_bytes() == FILES["tags.dat"]
    (site.folder / "tags.dat").unlink()
    (site.folder / "tags.dat").mkdir()
    with pytest.raises(DataError, match="tags.dat: Is a directory"):
        site.download(*NAMES)


@pytest.mark.parametrize("faults", ["503 cut 503", "wrong", "stalled", "moved"])
def test_only_a_failure_is_tried_again(site, faults):
    site.faults["users.dat"] = faults.split()
    site.download("users.dat")
    assert (site.folder / "users.dat").read_bytes() == FILES["users.dat"]
    assert len(site.asked) == 1 + len(faults.split())


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        *((fault, DataError, "--from DIR") for fault in ("404", "503", "cut", "stalled")),
        ("wrong", VerificationError, "users.dat.*expected git blob {}, found"),
    ],
)
def test_what_fails_every_time_is_refused_and_not_kept(site, fault, error, message):
    site.faults["users.dat"] = [fault] * 9
    with pytest.raises(error, match=message.format(site.source.blob_ids["users.dat"])):
        site.download(*NAMES)
    assert not list(site.folder.iterdir())
    assert len(site.asked) == 1 + citeulike.RETRIES


def test_no_server(source, tmp_path, monkeypatch):
    assert source.url.endswith(f"/something/{'0' * 40}/")
    for url in ("nonsense/", "http://127.0.0.1:9/"):
        monkeypatch.setattr(CiteULike, "url", url)
        with pytest.raises(DataError, match=f"download {url}users.dat.*Check the connection"):
            source.download(tmp_path, NAMES)


def test_files_come_from_a_download_or_a_folder(site, tmp_path, monkeypatch):
    """Downloads are kept in the cache; a folder of the user's own is used as it is."""
    monkeypatch.setenv("NCFBENCH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(citeulike, "read", lambda folder, options, say: folder)
    monkeypatch.setitem(citeulike.FILES, "title", ("tags.dat",))

    def folder_of(**options):
        chosen = Options(text=("title",), **options)
        planned = site.source.plan(chosen, say=said.append)
        verified.append([file["verified"] for file in planned.origin["files"].values()])
        return planned.read()

    said, verified = [], []
    for _ in range(2):
        assert folder_of() == tmp_path / "cache" / "something" / ("0" * 12)
    assert verified == [[True, True]] * 2
    assert not said
    assert len(site.asked) == 2, "the second time nothing is downloaded"
    local = write_files(tmp_path / "local", dict.fromkeys(NAMES, b"other"))
    ids = site.source.blob_ids["users.dat"], git_blob_id(local / "users.dat")
    message = "users.dat is not the published file: expected git blob {}, found {}.*--allow-unv"
    with pytest.raises(VerificationError, match=message.format(*ids)):
        folder_of(from_=local)
    assert folder_of(from_=local, allow_unverified=True) == local
    assert "Accepted (--allow-unverified)" in said[0]
