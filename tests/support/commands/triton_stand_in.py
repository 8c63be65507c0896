"""A server whose Triton is a small program that does as it is told; nothing forks models."""

from __future__ import annotations

import sys

from merlin_sim.serving.triton.serve import Server
from merlin_sim.serving.triton.triton_process import OwnProcess

# What it does at each of its starts: aborts, exits, hangs, serves; or dies and leaves a process
# that nothing but SIGKILL ends.
STAND_IN = """
import json, os, signal, socketserver, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler

folder, *plan = sys.argv[1:]
with open(f"{folder}/../starts", "a+") as starts:
    starts.write(".")
    starts.seek(0)
    act = plan[min(len(starts.read()), len(plan)) - 1]
if act == "abort":
    os.kill(os.getpid(), 6)
if act == "exit":
    sys.exit(3)
if act == "leave":
    read, write = os.pipe()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with open(f"{folder}/../left", "w") as left:
            left.write(str(os.getpid()))
        os.write(write, b".")
        time.sleep(300)
    os.read(read, 1)
    os.kill(os.getpid(), 11)
if act == "hang":
    time.sleep(300)
os.mkdir(f"{folder}/probes")
for model in ("ids", "events"):
    with open(f"{folder}/probes/{model}.json", "w") as probe:
        json.dump({"id": model}, probe)
    with open(f"{folder}/probes/{model}.worker", "w") as worker:
        worker.write(str(os.getpid()))

class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "10")
        self.end_headers()
        self.wfile.write(b"0123456789")

    do_POST = do_GET
    def address_string(self):
        return ""
    def log_message(self, *arguments):
        pass

import grpc

class Ready(grpc.GenericRpcHandler):
    def service(self, details):
        found = bytes([8, 1]) if details.method.endswith("Ready") else b""  # `ready` is true
        return grpc.unary_unary_rpc_method_handler(lambda request, context: found)

calls = grpc.server(ThreadPoolExecutor(2), (Ready(),))
calls.add_insecure_port(f"unix:{folder}/grpc:1")
calls.start()
metrics, http = (
    socketserver.ThreadingUnixStreamServer(f"{folder}/{name}", Answers)
    for name in ("metrics", "http")
)
threading.Thread(target=metrics.serve_forever, daemon=True).start()
http.serve_forever()
"""


class StandIn(Server):
    """A server in whose Triton's place the program runs."""

    def plays(self, *plan: str) -> StandIn:
        """Say what it does at its first start, at its second, and so on."""
        self.plan = plan
        self.said: list[str] = []
        self._say = self.said.append
        return self

    def _command(self, folder, token):
        self.files = folder.parent
        return [sys.executable, "-c", STAND_IN, str(folder), *self.plan]

    def _start_fork_server(self):
        command = [sys.executable, "-c", "import signal; signal.pause()"]
        self._fork_server = OwnProcess(command, self._files.lock, 60)
