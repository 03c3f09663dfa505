"""The whole measurement, tiny, through real processes: every load reaches every target that is always there."""

import json
from pathlib import Path

import pytest

from bench.sections import SECTIONS
from bench.suite import idle, main, parse
from bench.targets import Variant

# Those whose targets are only more of the same take long to start.
LOADS = [section for section in SECTIONS if section.key not in ("calls-256", "workers", "scale")]


def test_every_load_is_measured_with_the_proxy_and_its_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "all.json"
    tiny = ["--quick", "--slices", "1", "--seconds", "0.05", "--streams", "0", "--only", "proxy", "aiohttp"]
    keys = [section.key for section in LOADS]
    assert main([*tiny, "--sections", *keys, "--json", str(file)]) == 0, capsys.readouterr().err
    measured = json.loads(file.read_text())["sections"]
    assert list(measured) == keys
    for section in LOADS:
        (found,) = measured[section.key]["rounds"]
        kinds = {target.partition("-")[0] for target in section.targets}
        assert {target.partition("-")[0] for target in found} == kinds & {"proxy", "aiohttp", "direct"}
        assert all(each["requests"] > 1 and each["cpu_ns"] > 0 for each in found.values())
    assert "Event streams" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--sections", "tls", "--write"], "written whole"),
        (["--sections", "nothing"], "invalid choice"),
        (["--envoy", "no/such/file"], "is not a program"),
    ],
)
def test_a_command_line_that_cannot_be_obeyed_is_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert complaint in capsys.readouterr().err


def test_idle_streams_that_fail_cost_nobody_his_other_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert idle(parse(["--quick"]), [Variant("nginx", program="/no/such/file")]) == {}
    assert "no figure for idle streams at nginx" in capsys.readouterr().err
