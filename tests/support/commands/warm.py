"""Programs that need not import TensorFlow: forked from a process that has, once for all tests.

    python -S -E warm.py PLACE PROGRAM ARGUMENT ...

runs what `python PROGRAM ARGUMENT ...` would, in a process of its own, with the environment,
directory, streams and exit code of this one; the two end together. Three of the four seconds that
a rank takes to start are imports. TensorFlow, Horovod and NVTabular are there before the program
begins, as in a notebook: test_arrival.py and test_stop_and_resume.py start processes cold too.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback

PACKAGES = ("tensorflow", "keras", "merlin_sim.schemas.merlin_import", "horovod.tensorflow")
PACKAGES += ("nvtabular",)
"""What ranks import of others, and with it pandas, arrow, Dask and numba.

None of it starts TensorFlow's runtime or joins a run, as `merlin.models.tf` does.
"""
LENGTH = 10
"""Digits before a request that say how long it is."""


def warm(program: str, *arguments: str) -> list[str]:
    """The words that run a program in a warm process."""
    return forked(socket_of_parent(), program, *arguments)


def forked(path: str, program: str, *arguments: str) -> list[str]:
    """The same where the process that is forked was started elsewhere."""
    return [sys.executable, "-S", "-E", __file__, path, program, *arguments]


_sockets: list[str] = []


def socket_of_parent() -> str:
    """Where to ask: starts the process that is forked, once; it ends with this one."""
    if not _sockets:
        import subprocess
        import tempfile

        from processes import environment

        folder = tempfile.TemporaryDirectory(prefix="merlin-sim-warm-")
        path = os.path.join(folder.name, "socket")
        pipe = subprocess.PIPE
        parent = subprocess.Popen(
            [sys.executable, __file__, path], stdin=pipe, stdout=pipe, env=environment()
        )

        def end() -> None:
            parent.communicate()  # closes what it waits at
            folder.cleanup()

        atexit.register(end)
        assert parent.stdout.readline() == b"ready\n"
        _sockets.append(path)
    return _sockets[0]


def ask(path: str, words: list[str]) -> int:
    """Have a program run, and wait for its exit code; what ends by a signal ends this one by it."""
    given = {"words": words, "folder": os.getcwd(), "environ": dict(os.environ)}
    request = json.dumps(given).encode()
    streams = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendmsg([f"{len(request):{LENGTH}}".encode()], [streams])
        connection.sendall(request)
        code = int(connection.makefile().readline())
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL, which nobody can catch
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def wait_for_requests(path: str) -> list[str] | None:
    """Wait until this process ends, None then, or is the one forked for a program: its words."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(16)
        print("ready", flush=True)
        while True:
            readable, _, _ = select.select([listener, sys.stdin], [], [], 1)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if sys.stdin in readable:
                return None
            if readable:
                connection, _ = listener.accept()
                with connection:
                    if os.fork() == 0:
                        listener.close()
                        return _answer(connection)


def _answer(connection: socket.socket) -> list[str]:
    """Fork for one program, whose words it returns there; here end with the program's code."""
    length, [(*_, rights)], _, _ = connection.recvmsg(LENGTH, socket.CMSG_SPACE(3 * 4))
    with connection.makefile("rb") as file:
        given = json.loads(file.read(int(length)))
    streams = array.array("i", rights)
    program = os.fork()
    if program == 0:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    if program == 0:
        os.chdir(given["folder"])
        os.environ.clear()
        os.environ.update(given["environ"])
        return given["words"]
    end = os.pidfd_open(program)
    if end not in select.select([end, connection], [], [])[0]:  # whoever asked is gone
        os.kill(program, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    with contextlib.suppress(OSError):
        connection.sendall(f"{code}\n".encode())
    os._exit(0)


def run(words: list[str]) -> None:
    """Run a program and end as Python does, but for taking every module apart: a second or more."""
    sys.argv, sys.path[0] = words, os.path.dirname(words[0])
    sys.stdin = open(0, closefd=False)  # what was there knows whether other files can be sought in
    sys.stdout, sys.stderr = (open(number, "w", 1, closefd=False) for number in (1, 2))
    code = 1
    try:
        runpy.run_path(words[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Ask for a program, or be the process that is forked."""
    if sys.argv[2:]:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
    from merlin_sim.foundation.process_wide import collect_less_often, silence_third_party_noise

    collect_less_often()
    silence_third_party_noise()
    for package in PACKAGES:
        if importlib.util.find_spec(package.partition(".")[0]) is None:  # Horovod may be left out
            continue
        importlib.import_module(package)
    gc.freeze()  # or the first collection in each would copy every page
    words = wait_for_requests(sys.argv[1])
    if words is not None:
        run(words)


if __name__ == "__main__":
    main()
