"""An HTTP server on a socket in a folder, as a front knows Triton's."""

from __future__ import annotations

import socketserver
import threading
from http.server import BaseHTTPRequestHandler


class Answers(BaseHTTPRequestHandler):
    """What each request gets; says nothing of them."""

    protocol_version = "HTTP/1.1"

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def respond(self, status, content, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def address_string(self):
        return "a socket in a folder"

    def log_message(self, *arguments):
        pass


class Upstream(socketserver.ThreadingUnixStreamServer):
    """Answers in a thread of its own until it is closed."""

    daemon_threads = True

    def __init__(self, path, answers):
        super().__init__(str(path), answers)
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def close(self):
        self.shutdown()
        self.server_close()
        self.thread.join()
