"""Tables as they come: quotation marks, encodings, line ends, parts; nothing is lost unsaid."""

from __future__ import annotations

import codecs
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables_of import ITEMS, LINKS, as_csv, as_parquet, named_links, prepare

from ncfbench.data.sources import prepare_command
from ncfbench.data.table import read_table
from ncfbench.errors import DataError

QUOTES = {
    "text after a closing one": ('1,"a" b,x\n2,c,x\n', 2),
    "never closed": ('1,a,x\n2,"b,x\n3,c,x\n', 3),
    "closed far below": ('1,a,x\n2,"b,x\n3,c,x\n4,"d",x\n', 3),
    "closed by the end of a text": ('1,a,x\n2,"b,x\n3,c,x\n4,d",x\n', 3),
    "around rows of names": ('A1,a,x\nA2,"b,x\nA3,c,x\nA4,d",x\n', 3),
    "closed on the next line": ('1,a,x\n2,"b,x\n3,c",x\n', 3),
    "escaped": ('1,"a \\"b\\" c",x\n', 2),
    "in a column that is not read": ('1,a,x\n2,b,"x\n3,c,y" z\n', 3),
}


@pytest.mark.parametrize("name", QUOTES)
def test_quotation_marks_never_swallow_rows(tmp_path: Path, name: str) -> None:
    rows, line = QUOTES[name]
    path = tmp_path / "m.csv"
    path.write_text("id,title,note\n" + rows)
    with pytest.raises(DataError, match=f"m.csv, line {line}: .*--no-quotes"):
        read_table(path)
    table = read_table(path, quotes=False)
    assert len(table["id"].values) == rows.count("\n")


def test_quotation_marks_that_enclose_are_read(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text('id,title\n1,"a, ""b"" c"\n2,"first\n9 lives\nlast"\n3,5" disk\n4,"c\n9, d"\n')
    values = read_table(path)["title"].values.to_pylist()
    assert values == ['a, "b" c', "first\n9 lives\nlast", '5" disk', "c\n9, d"]


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-16", b""),
        ("utf-32", b""),
        ("utf-16-le", b""),
        ("utf-16-be", b""),
        ("utf-16-be", codecs.BOM_UTF16_BE),
        ("utf-8", codecs.BOM_UTF8),
    ],
)
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_encodings_and_line_ends_are_recognised(
    tmp_path: Path, encoding: str, mark: bytes, ends: str
) -> None:
    path = tmp_path / "r.csv"
    path.write_bytes(mark + ends.join(["user,item", "é,1", "2,3", ""]).encode(encoding))
    for asked in ("utf-8", encoding):
        table = read_table(path, encoding=asked)
        assert table["user"].values.to_pylist() == ["é", "2"]
        assert table["item"].values.to_pylist() == ["1", "3"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "cp037"])
def test_an_encoding_that_is_not_the_files_is_named(tmp_path: Path, encoding: str) -> None:
    for path in (as_csv(tmp_path / "r.csv", LINKS), as_csv(tmp_path / "m.csv", ITEMS)):
        with pytest.raises(DataError, match=rf"{path.name}.* not (valid )?{encoding}"):
            read_table(path, encoding=encoding)


def test_latin_1_is_refused_with_the_flag_to_use(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_bytes(b"user,item\n" + b"1,2\n" * 300_000 + b"caf\xe9,2\n")
    with pytest.raises(DataError, match="line 300002: byte 0xe9 .*--encoding latin-1\\.$"):
        read_table(path)
    assert read_table(path, encoding="latin-1")["user"].values[-1].as_py() == "café"


def test_a_folder_of_parts_is_one_table(tmp_path: Path) -> None:
    """Whole numbers in one part and floats in another, as pandas writes them where one is missing,
    are the same ids.
    """
    whole, _ = prepare(tmp_path)
    (folder := tmp_path / "parts" / "year=2020").mkdir(parents=True)
    as_parquet(folder / "part-1.parquet", LINKS[:3])
    gaps = [{"userId": None, "movieId": 5.0, "rating": 1.0, "timestamp": 1}]
    floats = [row | {"userId": float(row["userId"])} for row in LINKS[3:]]
    as_parquet(tmp_path / "parts" / "part-2.parquet", [*floats, *gaps])
    (tmp_path / "parts" / "_SUCCESS").touch()
    dataset, said = prepare(tmp_path, tmp_path / "parts")
    assert named_links(dataset) == named_links(whole)
    assert "parts (2 Parquet files)" in said[0]
    assert "--links parts" in prepare_command("x", dataset.manifest)
    rounded = [row | {"userId": float(2**53 + 2)} for row in LINKS]
    as_parquet(tmp_path / "parts" / "part-2.parquet", rounded)
    with pytest.raises(DataError, match=r"part-2.parquet: userId has floats from 2\^53"):
        prepare(tmp_path, tmp_path / "parts")
    pq.write_table(pa.table({"userId": [1]}), folder / "part-3.parquet")
    with pytest.raises(DataError, match=r"part-3.parquet has other columns than"):
        read_table(tmp_path / "parts")


JSON = {
    "strings that look like dates": (['"2019-11-13"', '"2019-11-13 00:00"'], None),
    "numbers as they stand": (["22", "2.5", "1e17", "5.0"], ["22", "2.5", "1" + "0" * 17, "5"]),
    "lists and none": (['["a", null]', "null", "[]"], [["a", None], None, []]),
    "a list far below": ([*["1"] * 2**13, "null", '["b"]'], [*[["1"]] * 2**13, None, ["b"]]),
    "a name far below": ([*["null"] * 2**13, "7"], [*[None] * 2**13, "7"]),
    "true and false": (["true", "null", "false"], [True, None, False]),
    "half a pair": (['"cut \\ud83d"', '"\\ud83d\\ude00"'], ["cut \ufffd", "\U0001f600"]),
    "not a number": (["NaN", "Infinity", "1"], [None, None, "1"]),
}  # fmt: skip


@pytest.mark.parametrize("name", JSON)
def test_json_is_read_as_it_stands(tmp_path: Path, name: str) -> None:
    values, expected = JSON[name]
    path = tmp_path / "r.jsonl"
    path.write_text("".join(f'{{"x": {value}}}\n\n' for value in values))
    assert read_table(path)["x"].values.to_pylist() == (expected or list(map(json.loads, values)))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["1", '{"y": [1]}'], r"line 2: x is \{"),
        ([*["1"] * 2**13, "true", "2"], "line 8193: x is true"),
        (["true", *["1"] * 2**13], "line 1: x is true"),
        ([*["true"] * 2**13, "1"], "line 1: x is true"),
        (["1", "[[2]]"], r"line 2: x is \[\["),
        (["1", "2}, {"], "line 2: not JSON"),
        (["1", "[" * 200_000], "line 2: not JSON"),
        (["1", '{"a":' * 200_000], "line 2: not JSON"),
        (["1", '1, "y": 2, "x": 3'], "line 2: not JSON .an object gives a key twice"),
    ],
)
def test_json_of_no_use_is_refused_by_line(tmp_path: Path, lines: list[str], message: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("".join(f'{{"x": {value}}}\n' for value in lines))
    with pytest.raises(DataError, match=message):
        read_table(path)["x"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ratings.dat", b"1::1193::5\n1::661::3\n", "'::'. Replace it by tabs"),
        ("links.feather", b"ARROW1\0\0", "an Arrow file. Write it as Parquet"),
        ("links.parquet", b"user,item\n1,2\n", "not a Parquet file"),
        ("links.xlsx", b"PK\x03\x04", "a ZIP archive. Unpack it"),
        ("links.json", b'[{"user": 1}, {"user": 2}]', "jq -c '.[]'"),
    ],
)
def test_other_formats_are_refused_with_what_to_do(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=re.escape(message)):
        read_table(tmp_path / name)
