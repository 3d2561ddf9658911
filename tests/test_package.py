"""What a person gets who installs the wheel instead of cloning the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

from tests.support import ROOT

TIMEOUT = 240


def test_the_wheel_alone_runs_the_demonstration(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    # Built from a copy, since a build leaves its own folders beside the sources.
    source = tmp_path / "source"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, source], check=True, timeout=TIMEOUT)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"bridge_connector.py", "voice_bridge/config/starter.json", "servers/clock.py"} <= set(names)
    assert any(name.startswith("servers/corpus/") for name in names)
    assert not any(name.startswith(("tests/", "bench/")) for name in names)

    venv.create(tmp_path / "venv", with_pip=True)
    bin_ = tmp_path / "venv" / "bin"
    subprocess.run([bin_ / "python", "-m", "pip", "--quiet", "install", wheel], check=True, timeout=TIMEOUT)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    kept = {
        name: value for name, value in os.environ.items() if name not in ("MCP_ENDPOINT", "MCP_CONFIG", "PYTHONPATH")
    }
    ended = subprocess.run(
        [bin_ / "voice-bridge", "demo", "--once"], cwd=elsewhere, env=kept, capture_output=True, text=True,
        timeout=TIMEOUT, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "329312" in ended.stdout.replace(",", "")
