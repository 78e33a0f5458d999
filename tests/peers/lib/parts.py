"""The parts of the proof, by name. Each runs on a bench and adds its results to a report."""

import time

import faults
import matrix
import speed
import weather
import wire
from bench import OURS, OURS6


def chosen(report, cells):
    """Those that the command line asks for: by name, and every N-th."""
    index, count = (int(word) for word in report.words.part.split("/"))
    return [cell for cell in cells if report.wants(cell)][index - 1::count]


def run_matrix(bench, report):
    """programs on both sides, with every choice of theirs"""
    cells = list(matrix.cells() if report.words.full else matrix.short())
    for number, cell in enumerate(chosen(report, cells)):
        start = time.monotonic()
        fault = matrix.run(bench, cell, 20000 + number)
        report.add("matrix", cell, fault, time.monotonic() - start)


def run_capture(bench, report):
    """what the tap shows of programs that run: ICRC, lengths, opcodes, PSNs; tshark's opinion"""
    sources = {wire.address(OURS), wire.address(OURS6)}
    path = f"{bench.folder}/capture.pcap"
    cells = list(matrix.short())
    if not report.words.full:
        cells = cells[::3]
    for number, cell in enumerate(chosen(report, cells)):
        start = time.monotonic()
        bench.capture(path)
        fault = matrix.run(bench, cell, 22000 + number)
        bench.capture_end()
        check = wire.Check(path, sources)
        malformed = wire.malformed(path)
        if check.wrong:
            fault = "\n".join(check.faults)
        elif malformed:
            fault = f"tshark finds malformed:\n{malformed[:2000]}"
        elif not fault and not check.counts[True]["packets"]:
            fault = "the capture has no packet of ours"
        report.add("capture", cell, fault, time.monotonic() - start, seen=str(check))


def run_faults(bench, report):
    """faults from each side, compared with what rxe gives rxe"""
    bench.ask("veth 4500 rxe")
    names = faults.scenes(bench) if report.words.full else faults.SHORT
    port = 24000
    for scene in chosen(report, names):
        start = time.monotonic()
        views = {}
        try:
            for pair in (("rxe", "rxe"), ("ours", "rxe"), ("rxe", "ours")):
                port += 1
                texts = faults.play(bench, scene, *pair, port)
                views[pair] = tuple(faults.View.of(text) for text in texts)
        except RuntimeError as error:
            report.add("faults", scene, str(error), time.monotonic() - start)
            continue
        took = time.monotonic() - start
        for asker, answerer in (("ours", "rxe"), ("rxe", "ours")):
            fault = faults.compare(scene, asker, views[asker, answerer], views["rxe", "rxe"])
            seen = {f"{a} asks {b}": [str(view) for view in views[a, b]] for a, b in views}
            report.add("faults", f"{scene}, {asker} asks", fault, took, seen=seen)
            took = 0


def run_weather(bench, report):
    """loss, duplication and reordering by netem, every byte compared"""
    cells = list(weather.cells()) if report.words.full else weather.short()
    for number, cell in enumerate(chosen(report, cells)):
        start = time.monotonic()
        fault, seen = weather.run(bench, cell, 26000 + number)
        report.add("weather", cell, fault, time.monotonic() - start, seen=seen)
        print(f"          {seen}")


def run_speed(bench, report):
    """the same perftest over rxe and through our library, inside the guest; alone, or in full"""
    if report.words.full or "speed" in report.words.parts:
        speed.report(bench, report)


PARTS = {"matrix": run_matrix, "capture": run_capture, "faults": run_faults,
         "weather": run_weather, "speed": run_speed}
