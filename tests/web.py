"""A web server on this machine that can be told to misbehave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """What is served, how badly, and what was asked.

    breaks: after so many bytes the connection closes, one entry a request
    statuses: answers of the first requests instead of the file
    """

    content: bytes
    content_type: str = "application/octet-stream"
    resumes: bool = True
    breaks: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    asked: list[str | None] = field(default_factory=list)  # the Range of each request
    address: str = ""


@contextmanager
def serve(site: Site) -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            site.asked.append(wanted)
            if site.statuses:
                self.send_error(site.statuses.pop(0))
                return
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            start = start if site.resumes else 0
            rest = site.content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Type", site.content_type)
            self.send_header("Content-Length", str(len(rest)))
            if start:
                total = len(site.content)
                self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
            self.end_headers()
            self.wfile.write(rest[: site.breaks.pop(0)] if site.breaks else rest)

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    site.address = f"http://127.0.0.1:{server.server_port}/file.tar"
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
