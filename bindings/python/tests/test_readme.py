"""Does the README's example run?"""

from __future__ import annotations

from pathlib import Path

import pytest


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    example = readme.split("```python\n", 1)[1].split("```", 1)[0]
    exec(compile(example, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert said.startswith("gpu-2 because: require model 2 of 2"), said
    assert "prefer heard 2 of 2" in said, "what was reported counts"
    assert "require slot 1 of 2" in said and said.endswith("least prefill_product -> gpu-2\n")
