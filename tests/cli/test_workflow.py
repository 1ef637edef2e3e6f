"""`stoker workflow`: lists, pictures, cancelling and retrying."""

import json
from pathlib import Path
from xml.etree import ElementTree

from stoker import Client
from stoker.cli import exit_codes
from stoker.model.options import Options
from stoker.model.workflows import Edge, Step
from tests.cli.conftest import Stoker

ONCE = Options(max_attempts=1)


def nightly(client: Client) -> int:
    steps = [
        Step("files", [b"list"], ONCE, key="listing"),
        Step("images", [b"1", b"2", b"3"], ONCE, [Edge(0)], key="resize"),
        Step("mail", [b"done"], ONCE, [Edge(1, "continue"), Edge(0)], key="report"),
    ]
    return client.push_workflow(steps, name="nightly").id


def test_workflows_are_listed(client: Client, at: Stoker):
    assert at("workflow", "list").out == "no workflows\n"
    workflow = nightly(client)
    line = at("workflow", "list").out.splitlines()[1].split()
    assert line[:4] == [str(workflow), "nightly", "running", "0/3"]
    assert at("workflow", "list", "--state", "failed").out == "no workflows\n"
    (found,) = json.loads(at("workflow", "list", "--json", "--name", "nightly").out)
    assert found["id"] == workflow


def test_a_workflow_is_drawn(client: Client, at: Stoker):
    workflow = str(nightly(client))
    client.ack(next(iter(client.pull("files"))).id)
    shown = at("workflow", "show", workflow).out
    for text in ("nightly", "running", "1 of 5 have ended, 20 %"):
        assert text in shown
    assert " ✔ listing " in shown
    assert " images, group of 3: 3 waiting │" in shown
    assert shown.endswith("╯\n\n┄ a failure before it is tolerated\n")
    boxes, tips = shown.count("╭"), shown.count("▼")
    assert (boxes, tips) >= (3, 2)
    assert json.loads(at("workflow", "show", workflow, "--json").out)["total"] == 5


def test_a_workflow_is_drawn_as_mermaid_and_as_svg(client: Client, at: Stoker, tmp_path: Path):
    workflow = str(nightly(client))
    mermaid = at("workflow", "show", workflow, "--mermaid").out
    assert mermaid.startswith("flowchart LR\n")
    assert "s0 --> s1" in mermaid
    assert "s1 -.-> s2" in mermaid
    picture = tmp_path / "nightly.svg"
    assert at("workflow", "show", workflow, "--svg", str(picture)).code == exit_codes.OK
    root = ElementTree.fromstring(picture.read_text())
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"listing", "resize", "report"} <= set(texts)


def test_a_workflow_is_cancelled_only_when_that_is_sure(client: Client, at: Stoker):
    workflow = nightly(client)
    assert at("workflow", "cancel", str(workflow)).code != exit_codes.OK
    assert client.get_workflow(workflow).state == "running"
    assert at("workflow", "cancel", str(workflow), "--yes").out == f"cancelled workflow {workflow}\n"
    assert client.get_workflow(workflow).state == "cancelled"


def test_a_failed_workflow_is_retried(client: Client, at: Stoker):
    workflow = nightly(client)
    assert at("workflow", "retry", str(workflow)).code == exit_codes.REFUSED
    client.fail(next(iter(client.pull("files"))).id)
    assert "failed" in at("workflow", "show", str(workflow)).out
    assert f"workflow {workflow} is running: 5 of its 5" in at("workflow", "retry", str(workflow)).out


def test_a_workflow_that_is_not_there_is_refused(client: Client, at: Stoker):
    assert at("workflow", "show", "6400").code == exit_codes.REFUSED
