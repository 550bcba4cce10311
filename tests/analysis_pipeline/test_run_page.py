"""The page of a run: the story, the steps, the tested system, the last lines, and missing evidence."""

import html
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis import report
from analysis.pipeline import analyze
from analysis.report import render_run
from analysis.verdict import Verdict
from orchestrator.command.line import main
from tests.analysis_pipeline.page_words import words_of_kafka
from tests.analysis_pipeline.stored_registers import StoredRegisters
from tests.analysis_pipeline.stored_run import StoredRun
from tests.orchestrator.stored_campaign import StoredCampaign, ask


def page_of(run: Path) -> str:
    analyze(run, engine="in-process", plots=False)
    return render_run(run).read_text()


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of KIP-101's first scenario with the old rule of truncation."""
    store = tmp_path_factory.mktemp("store")
    command = ["run", "kip101-scenario1", "--cell", "mutated", "--world", "simulation", "--quiet"]
    assert main([*command, "--store", str(store)]) == 0
    (run,) = store.glob("kip101-scenario1/*-mutated-1")
    return (run / "report.html").read_text()


KIP101_SCENARIO_1 = [
    ("both replicas are in sync", ["n1 leader of log-0", "epoch 0", "ISR [n1, n2]"]),
    ("A and B are named", ["step 1: A is n1"]),
    ("A and B are named", ["step 2: B is n2"]),
    ("the leader acknowledges the record", ["append of record 1.1.0 at offset 0: ok", "answered by n1"]),
    ("the follower is cut off from the leader", ["fault f1 starts: partition-one", "n1->n2"]),
    ("the follower is killed before it has learned the high watermark", ["fault f3 starts: kill on n2"]),
    ("it restarts", ["n2 the process starts", "clean shutdown before: false"]),
    ("the controller counts it as in sync", ["n2 follower of log-0, leader n1, epoch 0, ISR [n1, n2]"]),
    ("it truncates to its high watermark", ["n2 truncates log-0 from offset 3 to 0, to its high watermark"]),
    ("the leader is killed", ["fault f4 starts: kill on n1"]),
    ("the follower is elected", ["n2 leader of log-0, leader n2, epoch 1, ISR [n2]"]),
    ("the former leader restarts", ["n1 the process starts"]),
    ("it truncates, too", ["n1 truncates log-0 from offset 3 to 0"]),
    ("another record gets the offset", ["append of record 1.1.3 at offset 0: ok", "answered by n2"]),
    ("the record is lost", ["final read from offset 0", "record 1.1.3 at offset 0", "answered by n2"]),
]  # fmt: skip
"""What happens in the scenario as KIP-101 describes it, and words of the story's row."""


def unwrapped(page: str) -> str:
    """A page without the line breaks of its template."""
    return re.sub(r">\s+<", "><", re.sub(r"\s+", " ", page))


def cell(text: str) -> str:
    """A pattern of a witness's cell with this text."""
    return rf'<td data-label="[^"]*">{text}</td>'


def story_rows(page: str) -> list[str]:
    """The story's rows as HTML."""
    table = page[page.index('<table class="story">') :]
    return re.findall(r"<tr class=\"rank.*?</tr>", table[: table.index("</table>")], re.DOTALL)


def arrow_of(classes: str) -> str:
    """The part of an arrow that a lane's cell shows."""
    return " ".join(each for each in classes.split() if each == "crosses" or "-here-" in each)


def rows(page: str) -> list[str]:
    """The story's rows as text."""
    found = [row.partition('<td class="what">')[2] for row in story_rows(page)]
    return [" ".join(html.unescape(re.sub(r"<[^>]*>", " ", row)).split()) for row in found]


def position(shown: list[str], *words: str, after: int = 0) -> int:
    """The first row from `after` on that has all the words."""
    found = [at for at in range(after, len(shown)) if all(word in shown[at] for word in words)]
    assert found, f"no row after {after} has {words}: {shown[after:]}"
    return found[0]


def test_the_story_of_scenario_1_is_in_order_of_time(scenario: str) -> None:
    shown, at = rows(scenario), 0
    for what, words in KIP101_SCENARIO_1:
        found = [place for place in range(at, len(shown)) if all(word in shown[place] for word in words)]
        assert found, f"{what}: no row after {at} has {words}"
        at = found[0] + 1


def test_the_page_names_the_cause_in_one_sentence_before_anything_else(scenario: str) -> None:
    cause = re.search(r'<p class="cause fail">(.*?)</p>', scenario, re.DOTALL)
    assert cause
    assert scenario.index("<header>") < cause.start() < scenario.index("<section")
    parts = [
        "n2 truncated log-0 from 3 to 0 at ",
        "to its high watermark, became leader in epoch 1 at",
        "; then n1 truncated",
    ]
    parts += [": records 1.1.0, 1.1.1, 1.1.2, acknowledged at ", " are gone."]
    places = [cause[1].find(part) for part in parts]
    assert places == sorted(places), cause[1]
    assert -1 not in places, cause[1]


def test_an_arrow_joins_a_client_and_the_node_that_answered(scenario: str) -> None:
    found = story_rows(scenario)
    write = next(row for row in found if "append of record 1.1.0" in row)
    assert [*map(arrow_of, re.findall(r'<td class="lane ([^"]*)"', unwrapped(write)))][:4] == [
        "from-here-right",
        "to-here-right",
        "",
        "",
    ]
    read = next(row for row in found if "final read from offset 0" in row)
    assert [*map(arrow_of, re.findall(r'<td class="lane ([^"]*)"', unwrapped(read)))][:4] == [
        "to-here-left",
        "crosses",
        "from-here-left",
        "",
    ]


def test_each_row_of_the_story_names_its_file_and_line(scenario: str) -> None:
    shown = rows(scenario)
    truncated = shown[position(shown, "n2 truncates log-0 from offset 3")]
    assert re.search(r"nodes/n2/events\.jsonl:\d+$", truncated)
    assert re.search(r"history/journal\.jsonl:\d+$", shown[position(shown, "fault f3 starts")])
    assert 'href="nodes/n2/events.jsonl#L' in scenario


def test_journal_lines_of_one_moment_have_their_own_numbers(scenario: str) -> None:
    places = [row.split()[-1] for row in rows(scenario) if "the run loop: " in row]
    assert len(places) == len(set(places)) > 3


def test_the_page_has_the_steps_with_their_reasons(scenario: str) -> None:
    assert "from here on, B cannot fetch W from A again" in scenario
    steps = scenario[scenario.index("<h2>Steps</h2>") :]
    assert steps.index("cut A &lt;-&gt; B") < steps.index("kill B") < steps.index("start B")


def test_the_page_describes_the_tested_system(scenario: str) -> None:
    assert "Truncating to the high watermark loses an acknowledged write" in scenario, "the campaign's description"
    assert re.search(r"Brownout&#39;s own broker [0-9a-f]{7,}", scenario), "the system with its version"
    settings = scenario[scenario.index("<h2>What was tested</h2>") :]
    assert "replica.lag.time.max.ms" in settings
    assert "offsets.topic.num.partitions=4" in settings, "the nodes' configuration files"


def test_the_page_has_the_defaults_of_the_system(scenario: str) -> None:
    defaults = unwrapped(scenario[scenario.index('<details class="defaults">') :])
    assert re.search(r"<summary>default of each setting \(\d{2,}\)", defaults)
    for key, value in (
        ("log.flush.interval.messages", "&#34;0&#34;"),
        ("auto.create.topics.enable", "&#34;false&#34;"),
    ):
        assert f"<td>broker</td><td><code>{key}</code></td><td>{value}</td>" in defaults


def test_the_page_has_the_settings_that_kafka_logs(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run").write()
    lines = [
        "[2026-11-27 07:17:30,961] INFO KafkaConfig values: ",
        "\tlog.flush.interval.messages = 9223372036854775807",
    ]
    lines += [
        "\tadvertised.listeners = null",
        "\tssl.cipher.suites = <script>",
        " (kafka.server.KafkaConfig)",
        "\tx = y",
    ]
    (run / "nodes" / "n2" / "service.log").write_text("\n".join(lines) + "\n")
    page = unwrapped(page_of(run))
    assert "defaults included (3)" in page
    assert "<td>n2</td><td><code>log.flush.interval.messages</code></td><td>9223372036854775807</td>" in page
    assert "<td>&lt;script&gt;</td>" in page


def test_the_page_names_defaults_that_are_not_recorded(tmp_path: Path) -> None:
    assert "The defaults of this system are not recorded" in page_of(StoredRun(tmp_path / "run").write())


def test_an_expected_fail_looks_different_from_an_unexpected_one(scenario: str, tmp_path: Path) -> None:
    assert '<span class="badge fail expected">' in scenario
    assert '<span class="badge fail">' in page_of(StoredRun(tmp_path / "run", lost=7).write())


def test_promises_are_explained_in_place(scenario: str) -> None:
    assert '<abbr title="an acknowledged write persists">AWL</abbr>' in scenario
    assert re.search(r'<th title="[^"]+">invoked</th>', scenario)


def test_the_witness_names_the_leader_that_answered(scenario: str) -> None:
    page = unwrapped(scenario)
    table = page[page.index(">lost-acknowledged-write ") :]
    assert re.search(r"<th title=[^>]*>leader</th>", table)
    assert re.search(cell("n1") + cell("probe"), unwrapped(table))


def test_the_last_lines_of_a_process_are_shown_whole(tmp_path: Path) -> None:
    words = "\n".join(f"line {number} of the log" for number in range(80))
    page = page_of(StoredRun(tmp_path / "run", exits=(("n3", 1, None, words),)).write())
    assert words in page
    assert "n3 ended with exit code 1" in page


HOSTILE = "</pre><script>alert(1)</script>\x00\x1b[31m\x07\u202e\x9b"


def test_control_characters_and_markup_of_others_are_escaped(tmp_path: Path) -> None:
    run = StoredRun(
        tmp_path / "run", lost=7, exits=(("n3", 1, None, HOSTILE),), fatal_lines=(("n2", HOSTILE, HOSTILE),)
    ).write()
    (run / "nodes" / "n1" / "service.log").write_bytes(f"[2023-11-14 22:13:21,500] ERROR {HOSTILE}\n".encode())
    page = page_of(run)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page)
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)") >= 2


def test_the_font_stack_reaches_the_browser(tmp_path: Path) -> None:
    page = page_of(StoredRun(tmp_path / "run").write())
    style = page[page.index("<style>") : page.index("</style>")]
    assert "&#34;" not in style
    assert '"Segoe UI"' in style


def test_register_values_are_shown_by_client_and_count(tmp_path: Path) -> None:
    page = page_of(StoredRegisters(tmp_path / "run", stale=True).write())
    story = rows(page)
    assert position(story, "write of k2 = ") >= 0
    assert not re.search(r"\d{12,}", " ".join(story)), "no integer of 15 digits"


def test_the_page_names_the_node_that_answered_an_operation_on_a_register(tmp_path: Path) -> None:
    asked = {"c0": "n2:9", "c1": "elsewhere:9"}
    page = page_of(StoredRegisters(tmp_path / "run", stale=True, asked=asked).write())
    story = rows(page)
    assert "answered by n2" in story[position(story, "c0: read of k2", "ok")]
    assert "answered by elsewhere:9" in story[position(story, "c1: ", "k2", "ok")]
    witness = page[page.index('<h2 class="red">stale-register-read') :]
    witness = witness[: witness.index("</table>")]
    assert re.findall(r"<th[^>]*>([^<]*)</th>", witness)[0] == "node"
    assert set(re.findall("<tr>" + cell("([^<]*)"), unwrapped(witness))) == {"n2", "elsewhere:9"}


REGISTER_RUNS: dict[str, dict[str, Any]] = {
    "pass": {},
    "stale": {"stale": True},
    "stale, with the nodes that answered": {"stale": True, "asked": {"c0": "n1:9", "c1": "n2:9"}},
    "no final read": {"final_reads": False},
    "too few writes": {"min_ok": 1000},
    "interrupted": {"phases": ("setup", "main")},
}


@pytest.mark.parametrize("name", REGISTER_RUNS)
def test_the_page_of_another_system_has_no_word_of_kafka(tmp_path: Path, name: str) -> None:
    system = {"name": "store", "title": "A store", "version": "1"}
    assert (
        words_of_kafka(page_of(StoredRegisters(tmp_path / "run", system=system, **REGISTER_RUNS[name]).write())) == []
    )


def test_the_words_of_kafka_are_noticed(scenario: str) -> None:
    assert len(words_of_kafka(scenario)) > 100


def test_a_register_run_that_records_no_endpoints_has_no_column_of_nodes(tmp_path: Path) -> None:
    page = page_of(StoredRegisters(tmp_path / "run", stale=True).write())
    witness = page[page.index('<h2 class="red">stale-register-read') :]
    assert re.findall(r"<th[^>]*>([^<]*)</th>", witness)[0] == "client"
    assert "answered by" not in " ".join(rows(page))


def test_a_page_of_a_partly_collected_run_lists_missing_evidence(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run", lost=7).write()
    analyze(run, engine="in-process", plots=False)
    shutil.rmtree(run / "nodes" / "n2")
    (run / "history" / "journal.jsonl").unlink()
    (run / "campaign.toml").write_text("description = [broken")
    page = render_run(run).read_text()
    missing = page[page.index("Missing from this page") : page.index("</section>", page.index("Missing from this"))]
    assert "the files of n2 were not collected" in missing
    assert "history/journal.jsonl is missing" in missing


@pytest.mark.parametrize("name", ["run.toml", "history/journal.jsonl", "nodes/n1/events.jsonl", "nodes/n1/service.log"])
def test_a_run_with_a_damaged_file_has_a_page(tmp_path: Path, name: str) -> None:
    run = StoredRun(tmp_path / "run", lost=7).write()
    analyze(run, engine="in-process", plots=False)
    (run / name).write_bytes(b"\xff\x00 { not what it was\n" * 3)
    page = render_run(run).read_text()
    assert '<span class="badge fail">' in page
    assert "Missing from this page" in page


def test_the_page_of_an_unfinished_analysis_states_it(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run").write()
    replace(analyze(run, engine="in-process", plots=False), finished=False).write(run / "verdict.json")
    assert not Verdict.read(run / "verdict.json").finished
    assert "the analysis did not finish" in render_run(run).read_text()


_COUNTED = "run|fault|member|partition|operation|record|write|row|node|step|file|task|link|packet|anomalie"
_ONE_OF_SEVERAL = re.compile(rf"(?<![\d.,:>-])1 (?:\w+ )?(?:{_COUNTED})s\b")
"""A wrong plural, such as `1 confirmed faults`."""


@pytest.mark.parametrize("name", ["run", "lost", "registers", "campaign"])
def test_a_count_of_one_is_in_the_singular(tmp_path: Path, name: str) -> None:
    if name == "registers":
        page = page_of(StoredRegisters(tmp_path / "run", stale=True, keys=("k",)).write())
    elif name == "campaign":
        made = StoredCampaign(tmp_path / "store")
        made.made()
        assert ask("gate", made.path).code == 0
        page = (made.path / "report.html").read_text()
    else:
        page = page_of(StoredRun(tmp_path / "run", has_group=name == "run", lost=7 if name == "lost" else None).write())
    text = html.unescape(
        " ".join(re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL).split())
    )
    assert _ONE_OF_SEVERAL.findall("it has 1 confirmed faults, and 1 runs") == ["1 confirmed faults", "1 runs"]
    assert _ONE_OF_SEVERAL.findall(text) == []


def test_one_row_of_a_witness_that_is_not_shown_is_counted_in_the_singular(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = StoredRegisters(tmp_path / "run", stale=True).write()
    (anomaly,) = analyze(run, engine="in-process", plots=False).anomalies
    monkeypatch.setattr(report, "MOST_WITNESS_ROWS", len(anomaly.witness) - 1)
    assert "In verdict.json: 1 more row of the witness." in unwrapped(render_run(run).read_text())
