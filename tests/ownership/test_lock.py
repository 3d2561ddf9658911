"""One bridge for each endpoint: real processes, real files, and every state a data folder can be in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import ROOT, is_alive
from voice_bridge.errors import EndpointTaken, UsageError
from voice_bridge.ownership.lock import EndpointLock, lock_file, try_lock
from voice_bridge.paths import data_dir

URL = "wss://cloud.example/mcp/?token=Tok3n-that-must-never-show"
HOLD = """
import sys
from voice_bridge.ownership.lock import EndpointLock
with EndpointLock("home", sys.argv[1]) as lock:
    print("remark:", lock.remark, flush=True)
    sys.stdin.read()
"""
NOBODY = 65534


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    monkeypatch.setenv("VOICE_BRIDGE_DATA", str(folder))
    return folder


@contextmanager
def holder(url: str = URL, before: str = "") -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the address from now on."""
    with subprocess.Popen(
        [sys.executable, "-c", before + HOLD, url], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "remark: \n"
            yield process
        finally:
            process.kill()


# ---- one holder


def test_an_address_in_use_is_refused_and_its_holder_named() -> None:
    with holder() as other:
        with pytest.raises(EndpointTaken) as refused:
            EndpointLock("home", URL)
        assert refused.value.holder == str(other.pid)
        served = "endpoint 'home' is already served by another bridge on this machine"
        assert str(refused.value) == f"{served} (process {other.pid}); stop that one first"
        with EndpointLock("home", URL + "2") as another:
            assert another.remark == ""


def test_an_address_that_was_let_go_is_free() -> None:
    EndpointLock("home", URL).release()
    with EndpointLock("home", URL) as lock:
        lock.release()
        lock.release()
        with EndpointLock("home", URL) as again:
            assert again.remark == ""


def test_the_file_tells_the_process_and_nothing_of_the_address(data: Path) -> None:
    with EndpointLock("home", URL):
        (file,) = (data / "locks").iterdir()
        assert file.read_text() == str(os.getpid())
        assert "Tok3n" not in file.name


def test_after_a_kill_the_number_in_the_file_means_nothing() -> None:
    """The old process id belongs to another program by then, which is none of our business."""
    with holder() as other:
        other.kill()
        other.wait(10)
    with subprocess.Popen(["sleep", "300"]) as stranger:
        try:
            lock_file(URL).write_text(str(stranger.pid))
            with EndpointLock("home", URL) as lock:
                assert lock.remark == ""
                with pytest.raises(EndpointTaken, match=f"process {os.getpid()}"):
                    EndpointLock("home", URL)
            assert is_alive(stranger.pid)
        finally:
            stranger.kill()


@pytest.mark.parametrize("text", [b"", b"\xff\xfe\x00", b"not a number"])
def test_a_holder_whose_file_says_nothing_useful_is_unknown(text: bytes) -> None:
    with holder():
        lock_file(URL).write_bytes(text)
        with pytest.raises(EndpointTaken) as refused:
            EndpointLock("home", URL)
        assert refused.value.holder == "unknown"


def test_a_full_disk_takes_the_number_and_not_the_lock() -> None:
    no_room = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
    with holder(before=no_room), pytest.raises(EndpointTaken) as refused:
        EndpointLock("home", URL)
    assert refused.value.holder == "unknown"


# ---- no lock to be had


def remark() -> str:
    with EndpointLock("home", URL) as lock, EndpointLock("home", URL) as second:
        assert lock.remark == second.remark, "nobody holds anything"
        assert "Tok3n" not in lock.remark
        return lock.remark


def test_a_data_folder_that_is_a_file_gives_a_remark(data: Path) -> None:
    data.write_text("")
    for folder in (data, data / "below"):
        os.environ["VOICE_BRIDGE_DATA"] = str(folder)
        assert remark() == (
            "cannot tell whether another bridge uses this endpoint: "
            f"the data folder {folder} cannot be made: {data if folder == data else folder} is not a folder; "
            "set VOICE_BRIDGE_DATA to a folder on this machine's own disk that you can write to"
        )


def test_locks_that_cannot_be_opened_give_a_remark(data: Path) -> None:
    data.mkdir()
    (data / "locks").write_text("")
    assert "the locks in the data folder cannot be used: File exists; set VOICE_BRIDGE_DATA to" in remark()
    (data / "locks").unlink()
    lock_file(URL).mkdir()
    assert "the locks in the data folder cannot be used: Is a directory" in remark()


def test_without_a_home_there_is_a_remark_and_no_folder_called_tilde(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become a user without a home")
    script = "import os, sys\nos.chdir(sys.argv[2])\nos.setuid(4294967)\n"
    done = subprocess.run(
        [sys.executable, "-c", "import voice_bridge.ownership.lock\n" + script + HOLD, URL, str(tmp_path)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert "the data folder cannot be found: there is no home folder; set VOICE_BRIDGE_DATA to" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_another_user_gives_a_remark(data: Path) -> None:
    data.mkdir()
    become = f"import os, voice_bridge.ownership.lock\nos.setuid({NOBODY})\n"
    if os.getuid() != 0:
        data.chmod(0o555)
        become = ""
    done = subprocess.run(
        [sys.executable, "-c", become + HOLD, URL],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert "Permission denied; set VOICE_BRIDGE_DATA to a folder" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="a descriptor without a file behind it is a matter of Linux")
def test_a_disk_without_locks_is_not_taken_for_a_busy_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        open(os.open(tmp_path / "file", os.O_PATH), "rb", buffering=0) as file,
        pytest.raises(OSError, match="Bad file"),
    ):
        try_lock(file)


def test_an_address_with_half_a_character_is_locked_like_any_other() -> None:
    with EndpointLock("home", "wss://cloud.example/\ud83d") as lock:
        assert lock.remark == ""


# ---- the data folder


def test_the_data_folder_is_made_and_a_tilde_is_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("VOICE_BRIDGE_DATA", "~/a/b")
    assert data_dir() == tmp_path / "home" / "a" / "b"
    assert data_dir().is_dir()


def test_a_home_that_nobody_has_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICE_BRIDGE_DATA", "~no-such-user/data")
    with pytest.raises(UsageError, match="there is no home folder for ~no-such-user/data; set VOICE_BRIDGE_DATA"):
        data_dir()
