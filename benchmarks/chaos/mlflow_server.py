"""A real MLflow server, and a proxy before it that can answer with errors or lose answers."""

from __future__ import annotations

import http.client
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.chaos.processes import wait_for

HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "transfer-encoding",
    "content-length",
    "host",
    "date",
    "server",
}
START_SECONDS = 120.0
REFUSED = b'{"error_code": "PERMISSION_DENIED", "message": "this server is read-only"}'


def free_port() -> int:
    """A port of the loopback that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


class MlflowServer:
    """`mlflow server` on a database of its own; its processes carry the
    environment they are given."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._directory, self._environment = directory, environment
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when it answers."""
        database, artifacts = self._directory / "server.db", self._directory / "artifacts"
        command = [
            sys.executable,
            "-m",
            "mlflow",
            "server",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
        ]
        command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{database}"]
        command += ["--artifacts-destination", str(artifacts)]
        quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        with (self._directory / "server.log").open("a") as log:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **self._environment, **quiet},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if not wait_for(self._answers, START_SECONDS):
            raise TimeoutError(
                f"the MLflow server does not answer; see {self._directory / 'server.log'}"
            )

    def _answers(self) -> bool:
        with suppress(OSError):
            return bool(urllib.request.urlopen(f"{self.url}/health", timeout=2).status == 200)
        return False

    def owns(self, pid: int) -> bool:
        """Whether a process is the server or one of its workers."""
        try:
            return self.process is not None and os.getsid(pid) == self.process.pid
        except ProcessLookupError:
            return False

    def kill(self) -> int:
        """SIGKILL to it and its workers; the pid it was."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return self.process.pid


class Proxy:
    """Passes every request on to the server, but for the faults it is told to make."""

    def __init__(self, server: MlflowServer, rng: random.Random) -> None:
        self.server, self._random = server, rng
        self.port = free_port()
        self._listener: ThreadingHTTPServer | None = None
        self._lock = threading.Lock()
        # Of the requests to come: which are answered with an error.
        self._errors: deque[bool] | None = None
        self._many = 1
        self._on_error: Callable[[str], None] = lambda path: None
        self._losing: str | None = None  # the POST whose next answer is lost, by a part of its path
        self._lost = threading.Event()
        self.read_only = False  # whether writes are refused
        self.drips = threading.Event()  # set: answers come a byte a second, and never whole

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        """Listen; from now on connections are taken."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *words: object) -> None:
                pass

            def _handle(self) -> None:
                proxy.handle(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle

        ThreadingHTTPServer.allow_reuse_address = True
        self._listener = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._listener.daemon_threads = True
        threading.Thread(target=self._listener.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Refuse connections, as a server that is not there."""
        if self._listener is not None:
            self._listener.shutdown()
            self._listener.server_close()
            self._listener = None

    def fail(self, one_in: int, happened: Callable[[str], None]) -> None:
        """From now on one of so many requests, at random, is answered by HTTP 500;
        `happened` gets its path."""
        with self._lock:
            self._many, self._on_error = one_in, happened
            self._errors = self._one_in(one_in)

    def _one_in(self, many: int) -> deque[bool]:
        block = [False] * many
        block[self._random.randrange(many)] = True
        return deque(block)

    def stop_failing(self) -> None:
        with self._lock:
            self._errors = None

    def lose_answer(self, path: str) -> threading.Event:
        """Let the server do the next POST to such a path, and drop the connection
        instead of its answer."""
        with self._lock:
            self._losing, self._lost = path, threading.Event()
            return self._lost

    def _faults_of(self, method: str, path: str) -> tuple[bool, threading.Event | None]:
        """Whether this request is to fail, and what to set once its answer is lost."""
        with self._lock:
            lost = None
            if method == "POST" and self._losing is not None and self._losing in path:
                self._losing, lost = None, self._lost
            failing = False
            if self._errors is not None:
                failing = self._errors.popleft()
                self._errors = self._errors or self._one_in(self._many)
        return failing, lost

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        """One request of a client."""
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        failing, lost = self._faults_of(request.command, request.path)
        if self.drips.is_set():
            self._drip(request)
            return
        if self.read_only and self._writes(request.command, request.path):
            self._answer(request, 403, [], REFUSED)
            return
        # An error may come before the server has done what was asked, or after.
        status, headers, content = (
            500,
            [],
            b'{"error_code": "INTERNAL_ERROR", "message": "no such luck"}',
        )
        if not failing or self._random.random() < 0.5:
            try:
                answer = self._forward(request, body)
            except (OSError, http.client.HTTPException):
                request.close_connection = True
                return
            if not failing:
                status, headers, content = answer
        if lost is not None:
            request.close_connection = True
            lost.set()
            return
        if failing:
            self._on_error(request.path)
        self._answer(request, status, headers, content)

    def _drip(self, request: BaseHTTPRequestHandler) -> None:
        request.close_connection = True
        request.send_response(200)
        request.send_header("Content-Length", "100000")
        request.end_headers()
        with suppress(OSError):
            while self.drips.is_set():
                request.wfile.write(b" ")
                time.sleep(1.0)

    @staticmethod
    def _writes(method: str, path: str) -> bool:
        """Whether a request changes anything; searches are POSTs too."""
        return method != "GET" and not path.rpartition("/")[2].startswith(("search", "get"))

    @staticmethod
    def _answer(
        request: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], content: bytes
    ) -> None:
        request.send_response(status)
        for name, value in headers:
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    def _forward(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """What the server answers."""
        headers = {
            name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        try:
            connection.request(request.command, request.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        kept = [
            (name, value) for name, value in answer.getheaders() if name.lower() not in HOP_BY_HOP
        ]
        return answer.status, kept, content
