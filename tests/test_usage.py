"""What the process uses is told as far as the machine tells it."""

import os
import resource
import time
from pathlib import Path

import pytest

from proxy import usage as usage_module
from proxy.usage import usage


def test_the_numbers_are_those_of_this_process() -> None:
    now = usage()
    assert 0 < now.cpu[()] <= time.process_time()
    assert now.max_files == {(): resource.getrlimit(resource.RLIMIT_NOFILE)[0]}
    assert now.started[()] < time.time()
    assert 1e6 < now.resident[()] < now.virtual[()]


def test_open_files_are_counted() -> None:
    before = usage().open_files[()]
    descriptors = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
    try:
        assert usage().open_files[()] == before + 20
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def test_the_start_does_not_move() -> None:
    assert usage().started == usage().started


def test_without_proc_what_it_tells_has_no_series(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(usage_module, "_PROC", tmp_path / "proc")
    assert set(usage().as_values()) == {"cpu", "max_files"}


@pytest.mark.parametrize("name", ["a) b (c", "x) S 1 2", ")"])
def test_a_name_of_any_kind_is_read_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    (tmp_path / "self/fd").mkdir(parents=True)
    fields = " ".join(str(number) for number in range(4, 53))
    (tmp_path / "self/stat").write_text(f"1 ({name}) S {fields}\n")
    monkeypatch.setattr(usage_module, "_PROC", tmp_path)
    now = usage()
    assert now.virtual == {(): 23}  # the fields' own numbers in proc(5)
    assert now.resident == {(): 24 * resource.getpagesize()}
