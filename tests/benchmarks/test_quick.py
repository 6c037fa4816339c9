"""A benchmark at its smallest: it measures, keeps, resumes, and shows the same tables again."""

import json

import bench_race
import pytest

from ncfbench.errors import CheckFailedError

pytestmark = pytest.mark.long


def test_a_benchmark_measures_keeps_and_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NCFBENCH_ALLOCATOR", "none")  # as in this process, which never restarted
    file, name = tmp_path / "result.json", "search of cite: 12 of 100 trials"

    def run(*words):
        try:
            bench_race.Races().main([f"--json={file}", f"--data-dir={tmp_path}", *words])
        except SystemExit as ended:  # a target that is missed
            assert ended.code == CheckFailedError.exit_code
        return capsys.readouterr()

    shown, said = run("--quick", f"--cells={name}")
    assert said.count(": measuring") == 1
    assert [cell["cell"] for cell in json.loads(file.read_text())["cells"]] == [name]
    again, said = run("--quick", "--resume", f"--cells={name}")
    assert said.count(": kept") == 1
    assert shown == again == run("--show")[0] != ""
