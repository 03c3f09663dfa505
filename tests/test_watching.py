"""A change of a file is noticed once, when it has settled; so is an exchanged link on the way to it."""

import os
from pathlib import Path

import pytest

from proxy.watching import Watch


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "proxy.yaml"
    path.write_text("one")
    return path


def changes(watch: Watch, *files: Path, looks: int = 3) -> list[bool]:
    return [watch.changed(files) for _ in range(looks)]


def test_nothing_changes(file: Path) -> None:
    assert changes(Watch([file]), file) == [False, False, False]


def test_a_change_is_told_once_it_has_settled(file: Path) -> None:
    watch = Watch([file])
    file.write_text("longer")
    assert changes(watch, file) == [False, True, False]


def test_a_file_that_is_being_written_is_waited_for(file: Path) -> None:
    watch = Watch([file])
    for text in ("a", "ab", "abc"):
        file.write_text(text * 10)
        assert not watch.changed([file])
    assert changes(watch, file) == [True, False, False]


def test_a_file_that_is_replaced_with_one_of_the_same_size_and_time(file: Path) -> None:
    watch = Watch([file])
    other = file.with_name("other")
    other.write_text("two")
    os.utime(other, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    other.replace(file)
    assert changes(watch, file) == [False, True, False]


def test_a_change_that_is_taken_back_before_it_settles_is_none(file: Path) -> None:
    watch = Watch([file])
    before = file.stat()
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000))
    assert not watch.changed([file])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert changes(watch, file) == [False, False, False]


def test_the_links_of_a_config_map_are_exchanged(tmp_path: Path) -> None:
    """As Kubernetes does it: the file is a link through `..data`, a link to a folder, which is replaced by rename."""
    for number in (1, 2):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "proxy.yaml").write_text("same")
    os.symlink("..1", tmp_path / "..data")
    file = tmp_path / "proxy.yaml"
    os.symlink(Path("..data", "proxy.yaml"), file)
    watch = Watch([file])
    os.symlink("..2", tmp_path / "..data_tmp")
    os.rename(tmp_path / "..data_tmp", tmp_path / "..data")
    assert changes(watch, file) == [False, True, False]


def test_a_file_that_is_gone_for_a_moment(file: Path) -> None:
    watch = Watch([file])
    text = file.read_text()
    file.unlink()
    assert not watch.changed([file])
    file.write_text(text * 2)
    assert changes(watch, file) == [False, True, False]


def test_a_file_that_is_gone_for_good_is_a_change(file: Path) -> None:
    watch = Watch([file])
    file.unlink()
    assert changes(watch, file) == [False, True, False]


def test_other_files_to_watch_are_a_change_once(file: Path, tmp_path: Path) -> None:
    watch = Watch([file])
    certificate = tmp_path / "tls.crt"
    certificate.write_text("x")
    assert changes(watch, file, certificate) == [False, True, False]
    certificate.write_text("xy")
    assert changes(watch, file, certificate) == [False, True, False]
