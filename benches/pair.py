"""Two processes that talk to each other, for the measuring scripts of this folder.

Addresses are of 127/8 and belong to the process that asks. What was started is ended by its id.
"""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLI = f"{ROOT}/target/release/srdma-cli"
# How long a server may take until it listens.
PATIENCE = 10.0
_PORTS = itertools.count()


class Failed(Exception):
    """A measurement without a figure."""


def tidy_end():
    """Lets a script that is told to end leave its blocks first, so that nothing is left running."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def net():
    """The first three numbers of addresses that other runs do not use."""
    pid = os.getpid()
    return f"127.{64 + pid // 256 % 128}.{pid % 256}"


def free_port():
    """A port that nobody has at the moment, below those that connections take for themselves."""
    for _ in range(1000):
        port = 20_000 + (os.getpid() * 17 + next(_PORTS)) % 10_000
        try:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                with socket.socket(type=kind) as door:
                    door.bind(("", port))
            return port
        except OSError:
            continue
    raise Failed("no port is free")


class Process:
    """A process. Leaving the block ends it, and waits for its end."""

    def __init__(self, command, cpus=None, env=None, **popen):
        pin = (lambda: os.sched_setaffinity(0, cpus)) if cpus else None
        popen.setdefault("stdin", subprocess.DEVNULL)
        self.name = os.path.basename(command[0])
        self.child = subprocess.Popen(command, env=env, preexec_fn=pin, text=True, **popen)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for end in (self.child.terminate, self.child.kill):
            if self.child.poll() is None:
                end()
                try:
                    self.child.wait(timeout=2)
                except subprocess.TimeoutExpired:
                    pass
        for stream in (self.child.stdin, self.child.stdout, self.child.stderr):
            if stream:
                stream.close()

    def listens(self, port, proto="tcp"):
        """Waits until `port` is open."""
        wanted, end = f":{port:04X}", time.monotonic() + PATIENCE
        state = "0A" if proto == "tcp" else "07"
        while time.monotonic() < end and self.child.poll() is None:
            for table in (f"/proc/net/{proto}", f"/proc/net/{proto}6"):
                if os.path.exists(table):
                    with open(table) as lines:
                        words = [line.split() for line in lines]
                    if any(w[1].endswith(wanted) and w[3] == state for w in words[1:]):
                        return
            time.sleep(0.005)
        raise Failed(f"{self.name} does not listen")

    def said(self, seconds):
        """What a process that ends by itself has said."""
        try:
            out, _ = self.child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} takes longer than {seconds:.0f} s") from None
        if self.child.returncode:
            last = (out.strip().splitlines() or ["no word"])[-1]
            raise Failed(f"{self.name} ends with {self.child.returncode}: {last}")
        return out


def server(cli, addr, cpus=None, env=None, once=True):
    """A `perf server` on `addr`, and where it listens."""
    command = [cli, "perf", "server", "--child", "--listen", f"{addr}:0"]
    process = Process(
        command + (["--once"] if once else []),
        cpus, env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )
    line = process.child.stdout.readline()
    if not line:
        process.__exit__()
        raise Failed("srdma-cli perf server does not start")
    return process, json.loads(line)["addr"]
