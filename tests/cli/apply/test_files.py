"""Files of jobs: what is read from them, and what is refused, with its line."""

import json
import os

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell.cli.apply import files
from daybell.cli.apply.files import (
    FileError,
    find_files,
    read_file,
    read_yaml,
    write_yaml,
)
from daybell.cli.references import FILE_BYTES_MAX
from daybell.errors import UsageError

LOADERS = [yaml.SafeLoader, yaml.CSafeLoader] if yaml.__with_libyaml__ else [yaml.SafeLoader]


@pytest.fixture(params=LOADERS, ids=lambda loader: loader.__name__)
def loader(request, monkeypatch):
    monkeypatch.setattr(files, "_LOADER", request.param)


def written(tmp_path, name: str, text: str | bytes):
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("No", "No"),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("12:30:45", "12:30:45"),
        ("0755", "0755"),
        ("0x1F", "0x1F"),
        ("0o17", "0o17"),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("+1", "+1"),
        ("=", "="),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("-12", -12),
        ("1.50", 1.5),
        ("1e3", 1000.0),
        ('"true"', "true"),
        ("'12'", "12"),
        ("|\n  a\n  b", "a\nb\n"),
        ("[1, {b: 2}]", [1, {"b": 2}]),
    ],
)
def test_a_value_is_what_it_looks_like(text, value):
    (document,) = read_yaml(f"a: {text}\n")

    assert document.value == {"a": value}
    assert type(document.value["a"]) is type(value)


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3", 3, "'a' is there twice: in line 1"),
        ("a:\n  b: 1\n  b: 2", 3, "twice"),
        ("a: &x 1", 1, "anchor"),
        ("a: &x [1]\nb: *x", 1, "anchor"),
        ("b: 1\na: *x", 2, "alias"),
        ("a: 1\n<<: {b: 2}", 2, "merged"),
        ("a: 1\ns: * * * * *", 2, 'in quotes, as "*/5'),
        ("a: 1\ns: */5 * * * *", 2, 'in quotes, as "*/5'),
        ("s: @daily", 1, "'@daily'"),
        ("a: !!str 1", 1, "tag"),
        ("a: !secret X", 1, "tag"),
        ('!!python/object/apply:os.system ["true"]', 1, "tag"),
        ("a: !!python/name:os.system", 1, "tag"),
        ("a: ! 1", 1, "tag"),
        ("? [a, b]\n: 1", 1, "a key must be text"),
        ("? {a: b}\n: 1", 1, "a key must be text"),
        ("~: 1", 1, "a key is missing"),
        ("a: b: c", 1, "colon"),
        ("a: 1e999", 1, "too large"),
        ("a: " + "9" * 5000, 1, "too many digits"),
        ("- " * 100, 1, "nested deeper than 64"),
        ("[" * 100_000, 1, "nested deeper than 64"),
        ("{a: " * 5000, 1, "nested deeper than 64"),
        ('a: "x', 1, "not YAML"),
        ("a: [1", None, "not YAML"),
        ("a: \x01", None, "not YAML"),
        ("a: 1\n\tb: 2", 2, "a tab cannot indent YAML; use spaces"),
        ("a:\n \tb: 2\n \tc: 3", None, "a tab cannot indent YAML; use spaces"),
        ("a: @daily", 1, "in quotes"),
    ],
)
def test_what_would_surprise_is_refused_with_its_line(text, line, words):
    with pytest.raises(FileError) as refused:
        read_yaml(text)

    assert words in str(refused.value)
    assert line is None or refused.value.line == line


@pytest.mark.usefixtures("loader")
def test_a_bomb_of_aliases_never_goes_off():
    bomb = "a: &a [x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )

    with pytest.raises(FileError, match="anchor"):
        read_yaml(bomb)


@pytest.mark.usefixtures("loader")
def test_documents_know_their_lines():
    one, two = read_yaml("# first\na: 1\n---\n---\nb:\n- c: 1\n- d:\n    e: 2\n")

    assert (one.value, two.value) == ({"a": 1}, {"b": [{"c": 1}, {"d": {"e": 2}}]})
    assert one.line_of(("a",)) == 2
    assert two.line_of(("b", 1, "d", "e")) == 8
    assert two.line_of(("b", 1, "d", "nothing")) == 7
    assert two.line_of(("nothing",)) == 5


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", max_codepoint=0xFFFF))
    | st.sampled_from(
        ["on", "1e5", "012", "~", "<<", "2026-01-01", " a", "a: b", "- a", "\n", "#"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab:<~1 \n-", max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(values)
def test_what_is_written_is_read_again(value):
    (document,) = read_yaml(write_yaml({"a": value}))

    assert document.value == {"a": value}


@settings(max_examples=200, deadline=None)
@given(st.text("ab:-?[]{}!&*|>'\"%@`#, \n\t~<0.\x00\x85\ufeff", max_size=30))
def test_any_text_is_read_or_refused(text):
    try:
        documents = read_yaml(text)
    except FileError as fault:
        assert str(fault)
    else:
        json.dumps([one.value for one in documents])


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", '{"a": 1,\n "b": {"a": 2, "c": 1},\n"a": 3}', "a.json:3: 'a' is there twice"),
        ("a.json", '{"a":\n}', "a.json:2: not JSON"),
        ("a.json", '{"a": NaN}', "NaN is not a JSON number"),
        ("a.json", '{"a": 1e999}', "too large a number"),
        ("a.json", "[" * 200 + "]" * 200, "nested deeper"),
        ("a.json", "[" * 100_000, "nested deeper"),
        ("a.json", '{"a": ' + "9" * 5000 + "}", "not JSON"),
        ("a.toml", "a = 1\na = 2\nb = 1", "a.toml:2: not TOML"),
        ("a.toml", "a = inf", "put it in quotes"),
        ("a.toml", "a = " + "[" * 100_000, "nested deeper"),
        ("a.toml", "a = " + "[" * 100 + "]" * 100, "nested deeper"),
        ("a.yaml", b"a: 1\nb: \xff", "a.yaml:2: not UTF-8"),
        ("a.yaml", b"a: 1".decode().encode("utf-16"), "not UTF-8"),
        ("a.yaml", "x" * (FILE_BYTES_MAX + 1), "too large"),
        ("a.txt", "a: 1", "no file of jobs"),
        ("a", "a: 1", "no file of jobs"),
    ],
)
def test_files_that_cannot_be_read_say_where(tmp_path, name, text, words):
    file = written(tmp_path, name, text)

    with pytest.raises(UsageError) as refused:
        read_file(file)

    assert words in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_json_knows_its_lines(tmp_path):
    text = '{"jobs": [\n  {"name": "a\\"{",\n   "x": [1,\n  {"y": 2}]},\n  {"name": "b"}\n]}'
    (document,) = read_file(written(tmp_path, "a.json", text))

    assert document.line_of(("jobs", 0, "x")) == 3
    assert document.line_of(("jobs", 0, "x", 1, "y")) == 4
    assert document.line_of(("jobs", 1)) == 5
    assert document.place(("jobs", 1, "name")) == f"{tmp_path}/a.json:5"


def test_times_in_toml_are_text(tmp_path):
    text = "at = 2030-01-01T00:00:00Z\n[[jobs]]\nstart_at = 2030-01-01\n"
    (document,) = read_file(written(tmp_path, "a.toml", text))

    assert document.value == {
        "at": "2030-01-01T00:00:00+00:00",
        "jobs": [{"start_at": "2030-01-01"}],
    }


def test_a_folder_is_read_in_order_without_what_is_hidden(tmp_path):
    for name in ("b.yaml", "a/z.json", "a/b/c.toml", "c.YML", ".d.yaml", ".git/e.yaml", "f.py"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "a" / "loop").symlink_to(tmp_path / "a" / "b")

    found = find_files([str(tmp_path), str(tmp_path / "b.yaml"), str(tmp_path / ".d.yaml")])

    names = [str(file.relative_to(tmp_path)) for file in found]
    assert names == ["a/b/c.toml", "a/z.json", "b.yaml", "c.YML", ".d.yaml"]


def test_folders_behind_links_are_read_too(tmp_path):
    for name in ("apart/a.yaml", "apart/inner/b.yaml", "jobs/c.yaml"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / "jobs" / "team").symlink_to(tmp_path / "apart")
    (tmp_path / "apart" / "inner" / "back").symlink_to(tmp_path / "jobs")

    names = [str(file.relative_to(tmp_path)) for file in find_files([str(tmp_path / "jobs")])]

    assert names == ["jobs/c.yaml", "jobs/team/a.yaml", "jobs/team/inner/b.yaml"]


def test_a_link_that_leads_nowhere_is_no_empty_folder(tmp_path):
    (tmp_path / ".lock").symlink_to("nobody")
    assert find_files([str(tmp_path)]) == []
    (tmp_path / "team").symlink_to(tmp_path / "unmounted")

    with pytest.raises(UsageError, match="team cannot be read: No such file"):
        find_files([str(tmp_path)])


def test_a_folder_that_cannot_be_looked_into_is_no_empty_one(tmp_path, monkeypatch):
    (tmp_path / "shut").mkdir()
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)

    with pytest.raises(UsageError, match="shut cannot be read: Permission denied"):
        find_files([str(tmp_path)])


def test_what_is_not_there_is_told():
    with pytest.raises(UsageError, match="there is no file or folder 'nowhere'"):
        find_files(["nowhere"])
