"""The matrix: programs of Debian packages, one end on our library, the other on rxe.

    program × which end is the client × IPv4, IPv6 × path MTU × segmentation × sleeping × size

A cell is one run of two processes. Each must end with status 0; pingpongs compare what arrives.
"""

import dataclasses
import itertools

from bench import OURS, THEIRS

PINGPONGS = [f"ibv_{kind}_pingpong" for kind in ("rc", "uc", "ud", "srq")]
PERFTEST = [f"ib_{op}_{mode}" for op in ("send", "write", "read", "atomic")
            for mode in ("bw", "lat")]
SIZES = (1, 1025, 65536, 1048576)


@dataclasses.dataclass(frozen=True)
class Cell:
    program: str
    client: str    # "ours" or "rxe"
    ipv6: bool
    mtu: int
    gso: bool
    events: bool
    size: int

    def __str__(self):
        words = [self.program, f"{self.client} asks", "IPv6" if self.ipv6 else "IPv4",
                 f"MTU {self.mtu}", "GSO" if self.gso else "no GSO",
                 "events" if self.events else "polling", f"{self.size} B"]
        return ", ".join(words)


def sizes_of(program):
    if "atomic" in program:
        return (8,)
    if program == "ibv_ud_pingpong":    # a datagram is a packet, of the port's MTU
        return (1, 1025, 4096)
    return SIZES


def allowed(cell):
    """What the program offers at all."""
    if cell.events and "write" in cell.program:
        return False                    # perftest refuses: a WRITE wakes nobody
    if cell.program == "ibv_ud_pingpong" and cell.mtu != 4096:
        return False                    # it has no option for a path MTU
    return True


def cells():
    for program in PINGPONGS + PERFTEST:
        both = (False, True)
        for words in itertools.product(("ours", "rxe"), both, (1024, 4096), both, both,
                                       sizes_of(program)):
            cell = Cell(program, *words)
            if allowed(cell):
                yield cell


def short():
    """Every program both ways, with the other choices in turn: for a few minutes of CI."""
    turn = 0
    for program in PINGPONGS + PERFTEST:
        for client in ("ours", "rxe"):
            fits = [cell for cell in cells() if (cell.program, cell.client) == (program, client)]
            # A step that has no factor in common with the counts visits other values each time.
            yield fits[(turn * 37) % len(fits)]
            turn += 1


def messages(cell):
    """How many, so that a cell takes about a second under emulation."""
    if cell.size >= 1048576:
        return 5
    if cell.size >= 65536:
        return 20
    return 100 if cell.program.endswith("_bw") else 40


def words_of(cell, side, port):
    """The command line of one side, without the server's address."""
    if side == "ours":
        device, gid = ("fast" if cell.gso else "plain"), int(cell.ipv6)
    else:
        device, gid = "rxe0", 2 if cell.ipv6 else 1
    words = [cell.program, "-d", device, "-p", str(port), "-n", str(messages(cell))]
    if cell.program.startswith("ibv_"):
        words += ["-g", str(gid), "-s", str(cell.size), "-c"]
        if cell.program != "ibv_ud_pingpong":
            words += ["-m", str(cell.mtu)]
        if cell.program == "ibv_srq_pingpong":
            words += ["-q", "2", "-r", "16"]
    else:
        words += ["-F", "-x", str(gid), "-m", str(cell.mtu)]
        if "atomic" not in cell.program:
            words += ["-s", str(cell.size)]
    return words + (["-e"] if cell.events else [])


def run(bench, cell, port, seconds=45):
    """Runs a cell; `None`, or what went wrong."""
    server = "rxe" if cell.client == "ours" else "ours"

    def start(side, words):
        if side == "ours":
            return bench.ours(words, seconds)
        return bench.theirs(" ".join(words), seconds)

    first = start(server, words_of(cell, server, port))
    if not bench.listens(server, port, seconds):
        first.stop()
        return f"the server does not listen\n{first.wait(seconds + 5)[1]}"
    # The programs agree over TCP, always by IPv4; which addresses the QPs use, the GIDs say.
    address = OURS if server == "ours" else THEIRS
    second = start(cell.client, words_of(cell, cell.client, port) + [address])
    hangs = "" if second.done.wait(seconds - 5) else bench.counters()
    asked, answered = second.wait(seconds + 5), first.wait(seconds + 5)
    if asked[0] == 0 and answered[0] == 0:
        return None
    return (f"client ended with {asked[0]}, server with {answered[0]}\n"
            f"--- client\n{asked[1]}\n--- server\n{answered[1]}\n{hangs}")
