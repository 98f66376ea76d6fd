"""Finding an app by what people type."""

import sys

import pytest

from daybell import App, UsageError
from daybell.sdk.loading import load_app
from daybell.sdk.modules import AppImportError

ONE = "from daybell import App\napp = App('memory://')\n"
TWO = "from daybell import App\nfirst = App()\nsecond = App()\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_a_module_with_the_name_of_the_app(folder):
    (folder / "shop_one.py").write_text(TWO)

    module_app = load_app("shop_one:second")

    assert isinstance(module_app, App)
    assert module_app is sys.modules["shop_one"].second
    assert load_app("shop_one:second") is module_app


def test_a_module_with_only_one_app(folder):
    (folder / "shop_two.py").write_text(ONE + "same = app\n")

    assert load_app("shop_two") is sys.modules["shop_two"].app


def test_a_name_can_have_dots(folder):
    (folder / "shop_three.py").write_text(ONE + "class Config:\n    app = app\n")

    assert load_app("shop_three:Config.app") is sys.modules["shop_three"].app


@pytest.mark.parametrize("spec", ["sub/shop.py", "./sub/shop.py", "sub/shop.py:app"])
def test_a_file(folder, spec):
    (folder / "sub").mkdir()
    (folder / "sub" / "beside.py").write_text("URL = 'memory://'\n")
    (folder / "sub" / "shop.py").write_text(
        "from beside import URL\nfrom daybell import App\napp = App(URL)\n"
    )

    assert load_app(spec).url == "memory://"


def test_a_file_is_a_module_that_others_can_import(folder):
    (folder / "shop_four.py").write_text(ONE + "import shop_four_tasks\n")
    (folder / "shop_four_tasks.py").write_text(
        "from shop_four import app\n@app.task\ndef sell(): ...\n"
    )

    assert set(load_app("shop_four.py").tasks) == {"sell"}


def test_a_file_in_a_package_keeps_its_relative_imports(folder):
    package = folder / "outer_shop" / "inner"
    package.mkdir(parents=True)
    (folder / "outer_shop" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "place.py").write_text("URL = 'memory://'\n")
    (package / "shop.py").write_text(
        "from .place import URL\nfrom daybell import App\napp = App(URL)\n"
    )

    assert load_app("outer_shop/inner/shop.py").url == "memory://"
    assert "outer_shop.inner.shop" in sys.modules


def test_a_file_whose_name_another_module_has(folder):
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "shop_five.py").write_text(ONE)
    (folder / "email.py").write_text(ONE)

    apps = [load_app(spec) for spec in ("a/shop_five.py", "b/shop_five.py", "./email.py")]

    assert len(set(map(id, apps))) == 3
    assert load_app("b/shop_five.py") is apps[1]
    assert "site-packages" not in str(sys.modules["email"].__file__)
    assert not hasattr(sys.modules["email"], "app")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (":app", "names no app; write module:app or path/to/file.py"),
        ("no_such_shop", "there is no module 'no_such_shop' here"),
        ("no_such.shop:app", "there is no module 'no_such.shop' here"),
        ("no_such_shop.py", "there is no file 'no_such_shop.py'"),
        ("two:third", "two:third: there is no such name; apps in two: first, second"),
        ("two:App", "two:App: that is type, not an App; apps in two: first, second"),
        ("two", r"two has several apps \(first, second\); say which: two:name"),
        ("none.py", r"none.py has no App; make one: `app = App\(\)`"),
    ],
)
def test_what_is_no_app_is_explained(folder, spec, message):
    (folder / "two.py").write_text(TWO)
    (folder / "none.py").write_text("x = 1\n")

    with pytest.raises(UsageError, match=message) as refused:
        load_app(spec)
    assert not isinstance(refused.value, AppImportError)


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        ("import no_such_library", ModuleNotFoundError, "No module named 'no_such_library'"),
        ("1 / 0", ZeroDivisionError, "division by zero"),
        ("def f(:", SyntaxError, r"\.py, line 1: invalid syntax$"),
        ("import no_such_library", ModuleNotFoundError, "is it installed in this environment"),
        ("raise SyntaxError('odd')", SyntaxError, "failed: odd$"),
        ("raise SystemExit('bye')", SystemExit, r"when it is imported, with SystemExit\('bye'\)"),
        ("from daybell import NoSuchName", ImportError, "NoSuchName"),
    ],
)
@pytest.mark.parametrize("spec", ["broken_shop", "broken_shop.py", "email.py"])
def test_an_error_in_the_users_code_is_kept_as_it_is(folder, code, error, message, spec):
    name = "email.py" if spec == "email.py" else "broken_shop.py"
    (folder / name).write_text(code)

    with pytest.raises(AppImportError, match=message) as failed:
        load_app(spec)
    assert type(failed.value.__cause__) is error
