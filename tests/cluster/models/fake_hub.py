"""A Hugging Face hub of one repository on 127.0.0.1, which can cut and alter what it sends."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REPOSITORY = "someone/tiny-model"
COMMIT = "c" * 40


class FakeHub:
    """Serves the files of `folder`; `altered` maps a name to what is sent in its place."""

    def __init__(self, folder: Path) -> None:
        self.files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        self.altered: dict[str, bytes] = {}
        self.cut_after: dict[str, int] = {}
        self.requested: list[str] = []
        self.ranges: list[str] = []
        self.url = ""
        self.commit = COMMIT

    def model_info(self) -> dict[str, Any]:
        siblings = [self._sibling(name, content) for name, content in self.files.items()]
        return {
            "_id": "1",
            "id": REPOSITORY,
            "modelId": REPOSITORY,
            "sha": self.commit,
            "siblings": siblings,
            "private": False,
            "tags": [],
            "downloads": 0,
            "likes": 0,
        }

    def tree(self) -> list[dict[str, Any]]:
        entries = []
        for name, content in self.files.items():
            sibling = self._sibling(name, content)
            entry = {"type": "file", "path": name, "size": len(content), "oid": sibling["blobId"]}
            if "lfs" in sibling:
                entry["lfs"] = {**sibling["lfs"], "oid": sibling["lfs"]["sha256"]}
            entries.append(entry)
        return entries

    def etag(self, name: str) -> str:
        if name.endswith(".safetensors"):
            return hashlib.sha256(self.files[name]).hexdigest()
        return _blob_id(self.files[name])

    def _sibling(self, name: str, content: bytes) -> dict[str, Any]:
        sibling: dict[str, Any] = {"rfilename": name, "size": len(content)}
        sibling["blobId"] = _blob_id(content)
        if name.endswith(".safetensors"):
            digest = hashlib.sha256(content).hexdigest()
            sibling["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
        return sibling


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """Until the block ends."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        resolved = f"/{REPOSITORY}/resolve/{self.hub.commit}/"
        if path.startswith(f"/api/models/{REPOSITORY}/tree/"):
            self._json(self.hub.tree())
        elif path.startswith(f"/api/models/{REPOSITORY}"):
            self._json(self.hub.model_info())
        elif path.startswith(resolved) and path.removeprefix(resolved) in self.hub.files:
            self._file(path.removeprefix(resolved), with_body=with_body)
        else:
            self._json({"error": "Repository not found"}, status=404, code="RepoNotFound")

    def _json(self, value: Any, *, status: int = 200, code: str = "") -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _file(self, name: str, *, with_body: bool) -> None:
        content = self.hub.altered.get(name, self.hub.files[name])
        start = 0
        if asked := self.headers.get("Range"):
            self.hub.ranges.append(f"{name} {asked}")
            start = int(asked.removeprefix("bytes=").partition("-")[0])
        self.send_response(206 if asked else 200)
        self.send_header("X-Repo-Commit", self.hub.commit)
        self.send_header("ETag", f'"{self.hub.etag(name)}"')
        self.send_header("Content-Length", str(len(content) - start))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if with_body:
            self.hub.requested.append(name)
            cut = self.hub.cut_after.pop(name, None)
            self.wfile.write(content[start:] if cut is None else content[start : start + cut])
            self.close_connection = True


def _blob_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
