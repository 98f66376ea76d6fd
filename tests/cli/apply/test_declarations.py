"""Documents, as the jobs and templates that they declare."""

import pytest

from daybell.cli.apply.declarations import Declaration, Declarations
from daybell.cli.apply.files import Document, read_yaml
from daybell.errors import UsageError


def declared(*texts: str) -> Declarations:
    return Declarations(
        [
            Document(one.value, one.line, one.lines, f"{number}.yaml")
            for number, text in enumerate(texts)
            for one in read_yaml(text)
        ]
    )


def test_a_document_is_a_job_a_template_or_lists_of_both():
    found = declared(
        "name: a\ncommand: ls",
        "name: t\njob: {command: ls}",
        "jobs:\n- {name: b, command: ls}\n- {name: c, template: t}\ntemplates:\n"
        "- {name: u, job: {command: ls}}",
    )

    assert found.faults == []
    assert list(found.jobs) == ["a", "b", "c"]
    assert list(found.templates) == ["t", "u"]
    assert found.jobs["a"].fields == {"command": "ls"}
    assert found.templates["t"].fields == {"name": "t", "job": {"command": "ls"}}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("- name: a", "0.yaml:1: a document must be an object; put a list of jobs under `jobs`"),
        ("command: ls", "0.yaml:1: the job has no name"),
        ("job: {command: ls}", "0.yaml:1: the template has no name"),
        ("command: ls\nname: [a]", "0.yaml:2: job name must be text, not list"),
        ("command: ls\nname: a/b", "0.yaml:2: job name 'a/b' contains '/'"),
        ("name: a\ncomand: ls", "0.yaml:2: job 'a' has no field 'comand'; did you mean 'command'?"),
        ("name: a\nauthor: eve", "0.yaml:2: job 'a' has no field 'author'"),
        ("name: a\nexpect: 3", "0.yaml:2: job 'a' has no field 'expect'"),
        ("name: a\ndry_run: true", "0.yaml:2: job 'a' has no field 'dry_run'"),
        ("name: a\nid: x", "0.yaml:2: job 'a' has no field 'id'"),
        ("name: a\nkind: sql", "0.yaml:2: job 'a' has no field 'kind'"),
        ("name: a\nsettings: {}", "0.yaml:2: job 'a' has no field 'settings'"),
        ("name: a\n\ntenant: acme", "0.yaml:3: tenant cannot be said in a file; --tenant says"),
        ("name: a\nunique_key: k", "0.yaml:2: unique_key cannot be said in a file"),
        ("name: a\nsource: other", "0.yaml:2: source cannot be said in a file"),
        ("jobs:\n- ls", "0.yaml:2: a job must be an object, with a name"),
        ("jobs: {a: 1}", "0.yaml:1: jobs must be a list"),
        ("jobs: []\nname: a", "0.yaml:2: beside jobs and templates there is no 'name'"),
        ("jobs:\n- {name: a, command: ls}\n- {comand: x, name: b}", "0.yaml:3: job 'b' has no"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text, fault):
    (told,) = declared(text).faults

    assert told.startswith(fault)


def test_all_that_is_wrong_is_told_at_once():
    assert len(declared("name: a/b\n---\nname: c\nx: 1", "x: 1\n---\n- 1").faults) == 5


def test_a_name_that_comes_twice_is_told_with_both_places():
    found = declared("name: a\ncommand: ls", "# b\njobs:\n- {name: a, command: ls}")

    assert found.faults == ["1.yaml:3: job 'a' is declared twice: in 0.yaml:1, too"]


def test_a_job_and_a_template_may_share_a_name():
    assert declared("name: a\ncommand: ls\n---\nname: a\njob: {command: ls}").faults == []


def test_jobs_come_after_those_that_they_depend_on():
    found = declared(
        "jobs:\n- {name: a, dependencies: [b, c]}\n- {name: b, dependencies: [c, elsewhere]}\n"
        "- {name: c}\n- {name: d, dependencies: oops}\n- {name: e, dependencies: [1]}"
    )

    names = [job.name for job in found.in_order()]

    assert names.index("c") < names.index("b") < names.index("a")
    assert sorted(names) == list("abcde")


def test_a_circle_of_dependencies_is_told():
    found = declared("name: a\ndependencies: [b]\n---\nname: b\ncommand: ls\ndependencies: [a]")

    found.in_order()

    (fault,) = found.faults
    assert "dependencies lead in a circle: " in fault
    assert fault.startswith(("0.yaml:2", "0.yaml:6"))


CIRCLES = {
    "workflows": (
        "name: a\nworkflow:\n  nodes:\n  - {name: n, job: b}\n---\n"
        "name: b\nworkflow:\n  nodes:\n  - {name: n, job: a}",
        "workflows would run each other without end: ",
        ("0.yaml:4: ", "0.yaml:9: "),
    ),
    "both": (
        "name: a\nworkflow: {nodes: [{name: n, job: b}]}\n---\n"
        "name: b\ncommand: ls\ndependencies: [a]",
        "each of these jobs needs the next, so none can be made first: ",
        ("0.yaml:6: ",),
    ),
}


@pytest.mark.parametrize("kind", CIRCLES)
def test_a_circle_of_workflows_is_called_what_it_is(kind):
    text, said, places = CIRCLES[kind]
    found = declared(text)

    found.in_order()

    (fault,) = found.faults
    assert said in fault
    assert fault.startswith(places)


def test_an_error_is_told_with_the_line_of_its_field():
    (document,) = read_yaml("name: a\nhttp:\n  url: http://a\n  headers:\n    X: |\n      a\n")
    job = Declaration("job", "a", {}, Document(document.value, 1, document.lines, "a.yaml"))

    assert job.told(UsageError("no", field="http.headers.X")) == ["a.yaml:5: job 'a': no"]
    assert job.told(UsageError("no", field="queue")) == ["a.yaml:1: job 'a': no"]
    assert job.told(UsageError("no")) == ["a.yaml:1: job 'a': no"]
