"""Downloads from a real server on loopback that breaks off, stalls, redirects, refuses, or sends
something else.
"""

import hashlib
import http.server
import threading
from types import SimpleNamespace

import pytest
from support.tables import write_files

from ncfbench.data.files import git_blob_id
from ncfbench.data.sources import citeulike
from ncfbench.data.sources.citeulike import CiteULike, Options
from ncfbench.errors import DataError, VerificationError

FILES = {"users.dat": b"2 0 1\n1 2\n" * 500, "tags.dat": b"red\nfish\n"}
NAMES = tuple(FILES)


class Server(http.server.BaseHTTPRequestHandler):
    """Serves :data:`FILES`; ``faults`` says what goes wrong with the next answers for a name."""

    def do_GET(self):
        name = self.path.rsplit("/", 1)[1]
        self.asked.append(name)
        faults, content = self.faults.get(name), FILES[name]
        fault = faults.pop(0) if faults else ""
        if fault in ("404", "503"):
            self.send_error(int(fault))
            return
        self.send_response(302 if fault == "moved" else 200)
        if fault == "moved":
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


def test_a_folder_where_a_file_should_be(site):
    (site.folder / "users.dat").mkdir()
    with pytest.raises(DataError, match="users.dat: Is a directory"):
        site.download(*NAMES)


def test_no_server(source, tmp_path, monkeypatch):
    for url in ("nonsense/", "http://127.0.0.1:9/"):
        monkeypatch.setattr(CiteULike, "url", url)
        with pytest.raises(DataError, match=f"download {url}users.dat.*Check the connection"):
            source.download(tmp_path, NAMES)


def test_names_of_contents(source, tmp_path):
    (tmp_path / "a").write_bytes(b"hello\n")
    by_git = "ce013625030ba8dba906f756967f9e9ca394464a"  # git hash-object
    assert git_blob_id(tmp_path / "a") == by_git
    assert source.url.split("/")[-3:] == ["something", "0" * 40, ""]


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
