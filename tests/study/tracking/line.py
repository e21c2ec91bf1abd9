"""The way to a server, which asks for a password, is cut, and loses answers."""

import base64
import http.client
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PASSWORD = "hunter2-very-secret"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Line:
    """Stands before the server at a port of this machine; `uri` is what a study is given."""

    def __init__(self, port: int) -> None:
        self.cut = False
        self.losing: list[str] = []  # ends of paths: the next answer to such a request is lost
        self.absent: list[str] = []  # parts of paths the server does not know
        self.asked: list[str] = []
        line = self

        class Handler(BaseHTTPRequestHandler):
            def forward(self) -> None:
                line.asked.append(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                expected = "Basic " + base64.b64encode(f"maria:{PASSWORD}".encode()).decode()
                if line.cut:
                    self.close_connection = True
                    return
                if self.headers.get("Authorization") != expected:
                    self.send_error(401)
                    return
                if any(part in self.path for part in line.absent):
                    self.send_error(404)
                    return
                server = http.client.HTTPConnection("127.0.0.1", port)
                headers = {
                    key: value for key, value in self.headers.items() if key.lower() != "host"
                }
                server.request(self.command, self.path, body, headers)
                answer = server.getresponse()
                content = answer.read()
                lost = [end for end in line.losing if self.path.endswith(end)]
                if lost:
                    line.losing.remove(lost[0])
                    self.close_connection = True
                    return
                with suppress(BrokenPipeError):  # who asked may have been killed
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.getheader("Content-Type") or "")
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = forward

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://maria:{PASSWORD}@127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
