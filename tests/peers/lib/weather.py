"""Transfers under loss, duplication and reordering, in one direction and in both.

Program `pair`, scene `data`: every byte is compared, and every FETCH-ADD must be done once. The
tap's capture then tells what it took: who repeated how much, how many NAKs there were, and whether
we sent again what had been acknowledged.
"""

import dataclasses

import faults
import wire
from bench import OURS

KINDS = {"loss": "loss 2%", "duplication": "duplicate 10%",
         "reordering": "delay 2ms reorder 75% 50%",
         "all": "delay 1ms reorder 90% 50% loss 1% duplicate 2%"}


@dataclasses.dataclass(frozen=True)
class Cell:
    kind: str
    way: str      # into the guest, out of it, both
    asker: str
    size: int
    mtu: int

    def __str__(self):
        way = {"in": "to rxe", "out": "to us", "both": "both ways"}[self.way]
        return f"{self.kind} {way}, {self.asker} asks, {self.size} B, MTU {self.mtu}"


def cells():
    for kind in KINDS:
        for way in ("in", "out", "both"):
            for asker in ("ours", "rxe"):
                for size, mtu in ((3000, 1024), (65536, 4096)):
                    yield Cell(kind, way, asker, size, mtu)


def short():
    """One each way."""
    return [cell for cell in cells() if (cell.kind, cell.way, cell.size) == ("all", "both", 3000)]


def run(bench, cell, port, rounds=24):
    """`None` or what is wrong, and what the capture shows."""
    path = f"{bench.folder}/weather.pcap"
    bench.ask(f"weather {cell.way} {KINDS[cell.kind]}")
    bench.capture(path)
    answerer = "rxe" if cell.asker == "ours" else "ours"
    fault = None
    try:
        faults.play(bench, "data", cell.asker, answerer, port, (cell.mtu, cell.size, rounds), 60)
    except RuntimeError as error:
        fault = str(error)
    finally:
        bench.capture_end()
        bench.ask("weather off")
    check = wire.Check(path, {wire.address(OURS)})
    return fault or judge(check), str(check)


def judge(check):
    """What our packets must not show, whatever the network does."""
    ours, rxe = check.counts[True], check.counts[False]
    if check.wrong:
        return "\n".join(check.faults)
    # A gap is told once, and once more each time that nothing comes of it.
    naks, gaps = ours["NAK 0x60"], rxe["packets"]
    if naks > max(20, gaps // 4):
        return f"{naks} sequence NAKs for {gaps} packets"
    # A process that did not run for a while finds its timer due, and the answer in its socket.
    if ours["needless"] > max(100, ours["packets"] // 10):
        return f"{ours['needless']} packets sent again though acknowledged long before"
    return None
