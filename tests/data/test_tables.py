"""Tables as they come: quotation marks, encodings, line ends, parts; nothing is lost unsaid."""

import codecs
import csv
import datetime
import gzip
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import LINKS, as_parquet, named_links, prepare

from ncfbench.data.files import sha256
from ncfbench.data.sources import prepare_command
from ncfbench.data.table import read_table
from ncfbench.errors import DataError


def read(folder, name, content):
    """A table that is a file with this content, of which all columns are read."""
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    table = read_table(folder / name)
    return table, {column: table[column].values.to_pylist() for column in table.names}


def quoted(rows):
    return "m.csv", "id,title,note\n" + rows


def json_lines(*values):
    return "r.jsonl", "".join(f'{{"x": {value}}}\n\n' for value in values)


DOUBLE = "double those that are text"
REFUSED = [
    # Quotation marks never swallow rows: text after a closing one, never closed, closed far below,
    # escaped, in a column that is not read.
    (*quoted('1,"a" b,x\n2,c,x\n'), f"m.csv, line 2: .*{DOUBLE}"),
    (*quoted('1,a,x\n2,"b,x\n3,c,x\n'), f"m.csv, line 3: .*{DOUBLE}"),
    (*quoted('1,"a \\"b\\" c",x\n'), f"m.csv, line 2: .*{DOUBLE}"),
    (*quoted('1,a,x\n2,b,"x\n3,c,y" z\n'), f"m.csv, line 3: .*{DOUBLE}"),
    *(
        ("r.csv", header + "\n1,2\n3,4\n", "r.csv, line 1: no header")
        for header in ('"user_id,item_id', '"user" id,item_id', "", '"\n')
    ),
    # Encodings and compressions.
    ("r.csv", "", "r.csv is empty"),
    ("r.csv", "user,item\n1,2\n".encode("utf-16-le"), "line 3: 1 fields where the header has 2"),
    ("r.csv", "user,item\n1,2\n".encode("utf-16"), r"is UTF-16\. Convert it: iconv -f"),
    ("r.csv", b"u,i\n" + b"1,2\n" * 300_000 + b"\xe9,2\n", "line 300002: byte 0xe9 .*iconv -f LAT"),
    ("r.csv", gzip.compress(b"u,i\n1,2\n"), r"is not valid UTF-8\..* its suffix: \.gz, \.bz2"),
    ("r.csv.gz", "user,item\n1,2\n", "Is the file damaged"),
    # JSON of no use, by its line.
    (*json_lines("1", '{"y": [1]}'), r"line 3: x is \{"),
    (*json_lines(*["1"] * 2**13, "true", "2"), "line 16385: x is true"),
    (*json_lines(*["true"] * 2**13, "1"), "line 1: x is true"),
    (*json_lines("1", "[[2]]"), r"line 3: x is \[\["),
    (*json_lines("1", "2}, {"), "line 3: not JSON"),
    (*json_lines("1", "[" * 200_000), "line 3: not JSON"),
    # Other formats, with what to do.
    ("ratings.dat", "1::1193::5\n1::661::3\n", r"'::'\. Replace it by tabs"),
    ("links.feather", b"ARROW1\0\0", r"an Arrow file\. Write it as Parquet"),
    ("links.zip", b"PK\x03\x04", r"an archive, and no table\. Unpack it"),
    ("links.csv", b"PK\x03\x04xl/workbook.xml", "of a spreadsheet, save the sheet as CSV"),
    ("links.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 99, "a spreadsheet: save"),
    ("links.csv", b"\xef\xbb\xbf<!DOCTYPE html>\n<p>404", "is HTML or XML, not a table"),
    ("links.json", '[{"user": 1}, {"user": 2}]', r"jq -c '\.\[\]'"),
]


@pytest.mark.parametrize(("name", "content", "message"), REFUSED, ids=range(len(REFUSED)))
def test_files_that_are_no_table_are_refused_with_what_to_do(tmp_path, name, content, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, name, content)


ODD = {
    "closed by the end of a text": ('1,a,x\n2,"b,x\n3,c,x\n4,d",x\n', 3),
    "around rows of names": ('A1,a,x\nA2,"b,x\nA3,c,x\nA4,d",x\n', 3),
    "closed on the next line": ('1,a,x\n2,"b,x\n3,c",x\n', 3),
    "a recipe": ('7,"Ingredients:\n200g, flour, white\n3, eggs, big\nMix.",x\n', 2),
    "twice": ('1,"a\n2,b,c\n",x\n3,"a\n4,b,c\n",x\n', 2),
}


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ODD)
def test_texts_that_look_like_rows_are_read_and_told(tmp_path, name, mark):
    rows, line = ODD[name]
    content = quoted(rows)[1].replace(",", mark)
    table, columns = read(tmp_path, "m.csv", content)
    texts = [row[1] for row in csv.reader(content.splitlines(True), delimiter=mark)][1:]
    assert columns["title"] == texts
    more = ", and in 1 more rows" if name == "twice" else ""
    (warning,) = (text for text in table.warnings if text.startswith("Warning"))
    assert f"m.csv, line {line}{more}: a text in quotation marks has lines" in warning


HEADERS = {
    'user_id,item_id,"Amount\nin EUR"': ["user_id", "item_id", "Amount in EUR"],
    '"user\r\nid",item_id,x': ["user id", "item_id", "x"],
    '"user\rid",item_id,x': ["user id", "item_id", "x"],
    '"a\n\n b ",user_id,"item\n_id"': ["a b", "user_id", "item _id"],
    '"Amount, or\n""price""\n",user_id,item_id': ['Amount, or "price"', "user_id", "item_id"],
}


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("header", HEADERS)
def test_line_breaks_in_a_header_are_read(tmp_path, header, ends):
    table, columns = read(tmp_path, "r.csv", f"{header}{ends}1,2,3{ends}4,5,6{ends}")
    assert list(columns) == HEADERS[header]
    assert list(columns.values()) == [["1", "4"], ["2", "5"], ["3", "6"]]
    assert table.locate(1) == f"line {len((header + ends).splitlines()) + 2}"


QUOTED = '1,"a, ""b"" c"\n2,"first\n9 lives\nlast"\n3,5" disk\n4,"c\n9, d"\n'
MARKED = {"user": ["é", "2"], "item": ["1", "3"]}
FAR = 2**13  # rows
READ = [
    # Quotation marks that enclose; a suffix of tabs decides.
    (
        ("m.csv", "id,title\n" + QUOTED),
        {"id": [*"1234"], "title": ['a, "b" c', "first\n9 lives\nlast", '5" disk', "c\n9, d"]},
    ),
    (("m.tab", "id\ttext, long, plain\n7\ta, b\n"), {"id": ["7"], "text, long, plain": ["a, b"]}),
    (("m.tsv", "id,x\ttext;a|b\n7\ta, b\n"), {"id,x": ["7"], "text;a|b": ["a, b"]}),
    # Byte order marks and line ends.
    *(
        (("r.csv", mark + ends.join([b"user,item", b"\xc3\xa9,1", b"2,3", b""])), MARKED)
        for mark, ends in product((b"", codecs.BOM_UTF8), (b"\n", b"\r\n", b"\r"))
    ),
    # JSON as it stands.
    (json_lines('"2019-11-13"', '"2019-11-13 0:00"'), {"x": ["2019-11-13", "2019-11-13 0:00"]}),
    (json_lines("22", "2.5", "1e15", "5.0"), {"x": ["22", "2.5", "1" + "0" * 15, "5"]}),
    (json_lines("9007199254740992.0", "1e17"), {"x": ["9.0071992547409920E+15", "1E+17"]}),
    (json_lines('["a", null]', "null", "[]"), {"x": [["a", None], None, []]}),
    (json_lines(*["1"] * FAR, "null", '["b"]'), {"x": [*[["1"]] * FAR, None, ["b"]]}),
    (json_lines(*["null"] * FAR, "7"), {"x": [*[None] * FAR, "7"]}),
    (json_lines("true", "null", "false"), {"x": [True, None, False]}),
    (json_lines('"cut \\ud83d"', '"\\ud83d\\ude00"'), {"x": ["cut \ufffd", "\U0001f600"]}),
    (json_lines("NaN", "Infinity", "1"), {"x": [None, None, "1"]}),
]


@pytest.mark.parametrize(("file", "columns"), READ, ids=range(len(READ)))
def test_tables_are_read_as_they_stand(tmp_path, file, columns):
    assert read(tmp_path, *file)[1] == columns


# --- folders of parts


def test_a_folder_of_parts_is_one_table(tmp_path):
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
    as_parquet(folder / "part-3.parquet", [{"userId": 1}])
    with pytest.raises(DataError, match=r"part-3.parquet has other columns than"):
        read_table(tmp_path / "parts")


def test_parts_are_what_spark_reads(tmp_path):
    """Attempts that were not committed, checksums and marks of other programs are no parts."""
    folder = tmp_path / "parts"
    for path in ("", "_temporary/0/attempt_1", ".staging", "_delta/x=1", "a/.b", "_year=2020"):
        (folder / path).mkdir(parents=True, exist_ok=True)
        for name in ("part-0", "._part-1", "_hidden")[: 1 if path else 3]:
            as_parquet(folder / path / f"{name}.parquet", [{"user": path + name, "item": 1}])
    for name in ("_SUCCESS", ".part-0.parquet.crc", "_metadata"):
        (folder / name).write_bytes(b"x")
    table = read_table(folder)
    assert table["user"].values.to_pylist() == ["_year=2020part-0", "part-0"]
    assert table["_year"].values.to_pylist() == ["2020", None]
    assert not table.warnings
    digest = sha256(folder)
    (folder / "_temporary" / "1.parquet").write_bytes(b"PAR1")
    assert sha256(folder) == digest
    (folder / "part-1.csv").write_text("user,item\n1,2\n")
    warnings = str(read_table(folder).warnings)
    assert "parts has other files than .parquet, such as part-1.csv" in warnings


@pytest.mark.parametrize(
    ("log", "kind", "given"),
    [
        ("_delta_log/0.json", "delta", ""),
        ("metadata/v1.metadata.json", "iceberg", "data/label=0"),
        (".hoodie/hoodie.properties", "hudi", ""),
        ("_spark_metadata/0", "parquet", ""),
        ("metadata/columns.json", None, ""),
    ],
)
def test_tables_with_a_log_are_refused_by_name(tmp_path, log, kind, given):
    """A folder of descriptions is no log."""
    folder = tmp_path / "links"
    (folder / log).parent.mkdir(parents=True)
    (folder / log).write_text("{}")
    (folder / given).mkdir(parents=True, exist_ok=True)
    as_parquet(folder / given / "part-0.parquet", LINKS)
    if kind is None:
        assert len(read_table(folder)["userId"].values) == len(LINKS)
        return
    with pytest.raises(DataError, match=rf"is the log of a table \({kind}\).* as plain Parquet"):
        prepare(tmp_path, folder / given)


def test_links_to_files_are_read_and_links_to_folders_refused(tmp_path):
    for name in ("links", "elsewhere"):
        (tmp_path / name).mkdir()
        as_parquet(tmp_path / name / f"{name}.parquet", LINKS)
    (tmp_path / "links" / "more.parquet").symlink_to(tmp_path / "elsewhere" / "elsewhere.parquet")
    (tmp_path / "links" / ".hidden").symlink_to(tmp_path / "elsewhere")
    assert len(read_table(tmp_path / "links")["userId"].values) == 2 * len(LINKS)
    (tmp_path / "links" / "year=2020").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="year=2020 is a symbolic link to a folder"):
        read_table(tmp_path / "links")


CITIES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=5)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(CITIES, st.sampled_from([None, "0", "1"]), st.integers(1, 3)),
        min_size=1,
        max_size=5,
        unique_by=lambda part: part[:2],
    )
)
def test_folders_are_columns(parts):
    """As pyarrow writes and reads them."""
    with TemporaryDirectory() as name:
        fields = [("city", pa.string()), ("label", pa.string()), ("n", pa.int64())]
        rows = [part for part in parts for _ in range(part[2])]
        columns = map(list, zip(*rows, strict=True))
        table = pa.table(list(columns), pa.schema(fields))
        by = ds.partitioning(pa.schema(fields[:2]), flavor="hive")
        ds.write_dataset(table, name, format="parquet", partitioning=by)
        result = read_table(Path(name))
        columns = [map(str, result[key].values.to_pylist()) for key, _ in fields]
        assert sorted(zip(*columns, strict=True)) == sorted(tuple(map(str, row)) for row in rows)


@pytest.mark.parametrize(
    ("folder", "values", "row"),
    [
        ("0", [0, 0], None),
        ("0", [0.0, None], 2),
        ("0", ["no", "0"], 1),
        ("00", [0, 0], None),
        ("2020-01-02", [datetime.date(2020, 1, 2)], None),
        ("none", [0, 0], 1),
        ("__HIVE_DEFAULT_PARTITION__", [None, None], None),
    ],
)
def test_a_folder_and_its_file_agree(tmp_path, folder, values, row):
    """The column of the file, which has a type, is taken where both say the same."""
    (tmp_path / f"label={folder}").mkdir()
    as_parquet(tmp_path / f"label={folder}" / "part-0.parquet", pa.table({"label": values}))
    table = read_table(tmp_path)
    if row is None:
        assert table["label"].values.to_pylist() == values
        return
    message = rf"part-0.parquet: label is .* in row {row} of the file, and .* by its folder"
    with pytest.raises(DataError, match=message):
        table["label"]
