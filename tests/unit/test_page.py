"""The page of a run without a browser: one file, nothing from elsewhere, odd names, data that can be read back."""

import json
import re
import shutil
from html.parser import HTMLParser

import pytest

import fabemu
from fabemu.errors import InputError
from fabemu.page.answers import answer
from fabemu.page.assembly import PAGE_MAX_BYTES, embedded

pytest.importorskip("plotly")
pytest.importorskip("jinja2")

from fabemu.page import document, write_page

ODD = "</script><script>alert(\"1\")</script> & <b>bold</b> 'q' ünï日本 %{x} $y$ `z`"
SCENARIO = {
    "name": ODD,
    "fabric": {
        "kind": "graph",
        "hosts": [f"h0{ODD}", "h1&amp;", "h2", "h3"],
        "switches": ["s<0>", "s1"],
        "links": [
            {"a": f"h0{ODD}", "b": "s<0>"},
            {"a": "h1&amp;", "b": "s<0>"},
            {"a": "h2", "b": "s1"},
            {"a": "h3", "b": "s1"},
            {"a": "s<0>", "b": "s1"},
        ],
    },
    "nic": {"cc": {"kind": "none"}},
    "switch": {"buffer": "1MiB", "pfc": {"alpha": "1/32"}},
    "trace": {"interval": "10us"},
    "workload": [
        {"kind": "incast", "label": ODD, "receiver": "h3", "senders": [f"h0{ODD}", "h1&amp;", "h2"], "size": "600KB"},
    ],
}


class Page(HTMLParser):
    """Elements of a page: their attributes, the texts of each kind, and whether every script closes."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._open = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self._open.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if self._open and self._open[-1][0] == tag:
            self._open.pop()

    def handle_data(self, data):
        self.texts.append((self._open[-1] if self._open else ("", {}), data))

    def visible(self):
        return "".join(text for (tag, _), text in self.texts if tag not in ("script", "style"))

    def data(self):
        parts = [text for (tag, attributes), text in self.texts if tag == "script" and attributes.get("id") == "data"]
        return json.loads("".join(parts))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fabemu.run(SCENARIO, tmp_path_factory.mktemp("paged") / "odd.run")


@pytest.fixture(scope="module")
def text(run):
    return document(run)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_the_page_loads_nothing_from_elsewhere(page, text):
    assert len(text.encode()) < PAGE_MAX_BYTES
    for tag, attributes in page.elements:
        assert tag not in {"iframe", "object", "embed", "img", "base", "form"}
        assert "src" not in attributes and "srcset" not in attributes
        assert (attributes.get("href") or "#").startswith(("#", "data:,")), attributes
        assert not any(name.startswith("on") for name in attributes), attributes
    styles = "".join(found for (tag, _), found in page.texts if tag == "style")
    assert "url(" not in styles and "@import" not in styles
    assert [tag for tag, _ in page.elements].count("script") == 3


def test_odd_names_stay_texts(page, run):
    assert ODD in page.visible()
    assert not any(tag == "b" for tag, _ in page.elements)
    titles = [attributes["title"] for tag, attributes in page.elements if tag == "h1"]
    assert titles == [ODD]
    # The same names as the tables have, in the table of messages and in the answer.
    for name in set(run.flows.column("src").to_pylist()):
        assert name in page.visible()


def test_data_read_back_and_hold_no_tag(page, text, run):
    data = page.data()
    blob = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1]
    assert not set("<>&\u2028\u2029") & set(blob)
    assert set(data["figures"]) == {"times", "timelines", "storms"}
    fabric = data["fabric"]
    # Plotly reads tags and entities in its texts, so names are written such that it shows them as they are.
    assert "h1&amp;amp;" in fabric["names"]
    assert not any("<" in name for name in fabric["names"])
    assert {option["name"] for option in fabric["filters"][-1]["options"]} == {f"h0{ODD}", "h1&amp;", "h2", "h3"}


def test_fabric_data_are_those_of_the_ports_table(page, run):
    fabric = page.data()["fabric"]
    table = run.ports.to_pylist()
    names = [name.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for name in fabric["names"]]
    end_ps = run.info["simulated_ps"]
    for link, ends in enumerate(fabric["links"]):
        for back in (0, 1):
            sender, receiver = (names[ends[back]], names[ends[1 - back]])
            mine = [row for row in table if (row["node"], row["peer"]) == (sender, receiver)]
            half = 2 * link + back
            busy = sum(row["utilisation"] * (row["end_ps"] - row["start_ps"]) for row in mine) / end_ps
            assert fabric["values"]["use"][0][0][half] == pytest.approx(1000 * busy, abs=1.001)
            longest = max((row["queue_max_bytes"] for row in mine), default=0)
            assert fabric["values"]["queue"][0][0][half] == longest
            for number in range(1, len(fabric["times"])):
                here = [row for row in mine if row["start_ps"] == (number - 1) * 10_000_000]
                stopped = sum(row["paused_ps"] / (min(row["end_ps"], end_ps) - row["start_ps"]) for row in here)
                assert fabric["values"]["paused"][0][number][half] == pytest.approx(1000 * stopped, abs=1.001)
    assert max(map(max, fabric["values"]["paused"][0])) > 0


@pytest.mark.parametrize("value", ["</script>", "<!--", "a\u2028b", "&lt;", 'x"y'])
def test_embedded_json_survives_any_text(value):
    text = embedded({value: [value, 1.5, None]})
    assert json.loads(text) == {value: [value, 1.5, None]}
    assert not set("<>&\u2028") & set(text)


def test_the_answer_is_in_sentences(run, page):
    said = answer(run)
    assert said.partial is None
    assert [sentence.topic for sentence in said.sentences][:2] == ["status", "tail"]
    assert "all 3 messages are done after" in str(said)
    for sentence in said.sentences:
        assert sentence.text in page.visible()
    assert said.to_dict()["answer"][0]["text"] == said.sentences[0].text


def test_an_interrupted_run_is_marked_partial_at_the_top(tmp_path):
    with fabemu.prepare(SCENARIO, tmp_path / "cut.run") as simulation:
        for _ in simulation.step("20us"):
            break
    text = document(fabemu.load(tmp_path / "cut.run"))
    # Before the first part that has figures of the run.
    assert text.index("PARTIAL: the run is") < text.index('id="fabric"')


def test_a_killed_run_without_a_row_has_a_page(tmp_path):
    with fabemu.prepare(SCENARIO, tmp_path / "new.run"):
        shutil.copytree(tmp_path / "new.run", tmp_path / "killed.run")
    killed = fabemu.load(tmp_path / "killed.run")
    assert killed.flows.num_rows == 0
    found = Page(document(killed)).visible()
    assert "PARTIAL: the run is still going on, or was killed" in found
    assert "Healthy" not in found


def test_a_table_that_cannot_be_read_is_named(tmp_path):
    made = fabemu.run(SCENARIO, tmp_path / "cut.run")
    path = made.directory / "flows.arrow"
    path.write_bytes(path.read_bytes()[:100])
    assert "flows.arrow: is cut off inside its header" in Page(document(fabemu.load(made.directory))).visible()


def test_parts_whose_table_is_missing_say_why(tmp_path):
    made = fabemu.run({**SCENARIO, "trace": {"tables": ["flows"]}}, tmp_path / "flows.run")
    found = Page(document(made))
    for title in ("Fabric", "Queues and rates", "Storms of pauses", "Collectives and steps"):
        assert title in found.visible()
    assert found.visible().count("Not shown:") == 4
    assert "Not recorded, so not looked at: ports, pauses." in found.visible()
    bare = fabemu.run({**SCENARIO, "trace": {"tables": []}}, tmp_path / "bare.run")
    assert Page(document(bare)).visible().count("Not shown:") == 6


def test_a_run_of_nothing_has_a_page(tmp_path):
    nothing = {**SCENARIO, "until": "2us", "workload": [{**SCENARIO["workload"][0], "start": "1999ns"}]}
    made = fabemu.run(nothing, tmp_path / "empty.run")
    assert "Fabric" in Page(document(made)).visible()


def test_without_its_scenario_the_fabric_is_drawn_from_the_ports(run, tmp_path):
    import shutil

    shutil.copytree(run.directory, tmp_path / "lost.run")
    (tmp_path / "lost.run" / "scenario.toml").unlink()
    data = Page(document(fabemu.load(tmp_path / "lost.run"))).data()
    assert "Drawn from the ports table" in data["fabric"]["notes"][0]
    assert len(data["fabric"]["links"]) == 5


def test_a_page_appears_whole_or_not_at_all(run, tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    monkeypatch.setattr("fabemu.page.assembly._text", lambda name: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_page(run, path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert write_page(run, path) == path.stat().st_size
    with pytest.raises(fabemu.OutputError, match="exists already; replace it with --force"):
        write_page(run, path)


def test_missing_packages_are_named_with_the_way_out(run, monkeypatch):
    import sys

    for package, word in (("plotly.graph_objects", "plotly"), ("jinja2", "jinja2")):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            if package.startswith("plotly"):
                patch.setitem(sys.modules, "plotly", None)
            with pytest.raises(InputError, match=rf"{word}: install it with pip install 'fabemu\[report\]'"):
                document(run)
