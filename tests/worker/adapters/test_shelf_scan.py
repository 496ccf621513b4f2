"""What a look at the folder of adapters tells."""

from __future__ import annotations

import json
from pathlib import Path

from tests.adapter_files import save_adapter
from tests.cluster.models.adapters.test_files import CONFIG, GOOD
from worker.adapters.shelf_scan import scan


def test_the_watch_sees_whole_folders_with_good_names(tmp_path: Path) -> None:
    save_adapter(tmp_path / "good", CONFIG)
    save_adapter(tmp_path / ".hidden", CONFIG)
    save_adapter(tmp_path / ("x" * 97), CONFIG)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "adapter_config.json").write_text(json.dumps(GOOD))
    before = scan(tmp_path)
    assert list(before) == ["good"]
    save_adapter(tmp_path / "good", CONFIG, rank=16)
    assert scan(tmp_path)["good"] != before["good"]
