"""A web server on this machine that can be told to misbehave."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """What is served, how badly, and what was asked.

    breaks: after so many bytes the connection closes, one entry a request
    stalls: seconds of silence before such a connection closes; resets: whether it is torn down
    statuses: answers of the first requests instead of the file
    etag, modified: the version; asked to go on with another (If-Range), all is sent
    pause: seconds after every 64 kB
    """

    content: bytes
    content_type: str = "application/octet-stream"
    resumes: bool = True
    breaks: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    stalls: float = 0.0
    resets: bool = False
    etag: str | None = None
    modified: str | None = None
    pause: float = 0.0
    asked: list[str | None] = field(default_factory=list)  # the Range of each request
    conditions: list[str | None] = field(default_factory=list)  # its If-Range
    address: str = ""


class Server(ThreadingHTTPServer):
    """With the site, for its handlers."""

    def __init__(self, site: Site) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.site = site


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        site = self.server.site
        wanted, version = self.headers.get("Range"), self.headers.get("If-Range")
        site.asked.append(wanted)
        site.conditions.append(version)
        if site.statuses:
            self.send_error(site.statuses.pop(0))
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        start = start if site.resumes and version in (None, site.etag, site.modified) else 0
        self.describe(start)
        rest = site.content[start:]
        if site.breaks:
            self.wfile.write(rest[: site.breaks.pop(0)])
            self.break_off()
        else:
            self.send(rest)

    def describe(self, start: int) -> None:
        site, total = self.server.site, len(self.server.site.content)
        self.send_response(206 if start else 200)
        headers = {
            "Content-Type": site.content_type,
            "Content-Length": str(total - start),
            "Content-Range": f"bytes {start}-{total - 1}/{total}" if start else None,
            "ETag": site.etag,
            "Last-Modified": site.modified,
        }
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()

    def send(self, rest: bytes) -> None:
        try:
            for begin in range(0, len(rest), 1 << 16):
                self.wfile.write(rest[begin : begin + (1 << 16)])
                time.sleep(self.server.site.pause)
        except ConnectionError:
            return  # the other side was killed, or has seen enough

    def break_off(self) -> None:
        time.sleep(self.server.site.stalls)
        if self.server.site.resets:  # without lingering, what closes is reset
            now = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
            self.connection.close()

    def log_message(self, *_: object) -> None:
        """Silent."""


@contextmanager
def serve(site: Site) -> Iterator[Site]:
    server = Server(site)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    site.address = f"http://127.0.0.1:{server.server_port}/file.tar"
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
