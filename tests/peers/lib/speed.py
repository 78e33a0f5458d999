"""Speed side by side: the same perftest over rxe and through our library, inside the guest.

    v0 10.99.1.1 ══ veth, MTU 9000 ══ v1 10.99.1.2        both ends in the guest, two processors

First over two rxe devices; then rdma_rxe is unloaded, and `srdma-cli run` starts the same commands
on the same two addresses, through sockets and over the bridge (`--bridge`: memory that the two
processes share, past the veth pair, as rxe and NICs do between queue pairs of one port). Emulation slows what computes CRCs (PCLMUL, and the multiplications that
stand for it), which both sides do for every byte: it says little about large sizes on a processor.
"""

import json
import math
import time

PORT = 27000
# How often a row is measured before it counts as failed.
TRIES = 3
# Program, bytes, messages.
ROWS = (("ib_write_bw", 64, 5000), ("ib_write_bw", 4096, 2000), ("ib_write_bw", 65536, 200),
        ("ib_write_bw", 1048576, 20), ("ib_send_bw", 64, 5000), ("ib_send_bw", 4096, 2000),
        ("ib_send_bw", 65536, 200), ("ib_send_bw", 1048576, 20), ("ib_send_lat", 64, 1000))
# Ours, and what `srdma-cli run` is told.
WAYS = (("sockets", ""), ("bridge", "--bridge "))
# Where we want to be ahead.
AHEAD = {("ib_write_bw", 64), ("ib_write_bw", 4096), ("ib_send_bw", 64), ("ib_send_bw", 4096),
         ("ib_send_lat", 64)}
DEVICES = """cat >/tmp/devices.toml <<END
[[device]]
name = "one"
on = ["10.99.1.1"]
[[device]]
name = "two"
on = ["10.99.1.2"]
END
"""


def measure(bench, program, size, count, prefix, devices, gid, port):
    """MB/s, or microseconds for `_lat`."""
    words = f"{prefix}{program} -F -s {size} -n {count} -m 4096 -x {gid} -p {port}"
    server = bench.theirs(f"{words} -d {devices[1]}", 60)
    if bench.theirs(f"await_port {port}", 30).wait(40)[0]:
        server.wait(60)
        raise RuntimeError(f"{program} does not listen\n{server.output}")
    client = bench.theirs(f"{words} -d {devices[0]} 10.99.1.2", 60)
    status, text = client.wait(80)
    answered = server.wait(80)
    if status or answered[0]:
        raise RuntimeError(f"client {status}\n{text}\nserver {answered[0]}\n{answered[1]}")
    line = next(line for line in text.splitlines() if line.split()[:1] == [str(size)])
    # Latency: size, iterations, minimum, maximum, typical …; else: size, iterations, peak and
    # average bandwidth, millions of messages a second.
    figure = float(line.split()[4])
    return figure if program.endswith("_lat") else figure * size


def sound(figure):
    """False where perftest could not tell how fast the processor's counter runs: it then prints
    nothing but zeros or infinities."""
    return math.isfinite(figure) and figure > 0


def run(bench, rounds=1):
    """Rows of (program, size, rxe, ours by way), the best of each side's rounds; and the time, one
    way, of a ping-pong of bare UDP sockets, which no library above them can beat."""
    found = {}

    def all_rows(side, prefix, devices, gid):
        nonlocal port
        for program, size, count in ROWS:
            best = max if program.endswith("_bw") else min
            for _ in range(rounds):
                for _ in range(TRIES):
                    port += 1
                    value = measure(bench, program, size, count, prefix, devices, gid, port)
                    if sound(value):
                        break
                else:
                    raise RuntimeError(f"{program} {size} B: {value} is no figure")
                key = program, size, side
                found[key] = best(found.get(key, value), value)

    port = PORT
    bench.ask("veth 9000 rxe")
    all_rows("rxe", "", ("rxe1", "rxe2"), 1)
    # It holds UDP port 4791 while it is loaded.
    bench.ask("for d in rxe0 rxe1 rxe2; do rdma link del $d; done; modprobe -r rdma_rxe")
    bench.ask(DEVICES + "srdma-cli run --quiet -- ibv_devices")
    for way, option in WAYS:
        prefix = f"SRDMA_CONFIG=/tmp/devices.toml srdma-cli run --quiet {option}-- "
        all_rows(way, prefix, ("one", "two"), 0)
    limits = bench.ask("srdma-cli perf limit --local 10.99.1.1 --remote 10.99.1.2 --json", 60)
    limits = [json.loads(line) for line in limits.splitlines() if line.startswith("{")]
    bare = next(limit for limit in limits if limit["limit"] == "spinning_ping_pong")
    bare = bare["rtt_ns"]["p50"] / 2000
    bench.ask("modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0; nodes")
    rows = [(program, size, found[program, size, "rxe"],
             {way: found[program, size, way] for way, _ in WAYS}) for program, size, _ in ROWS]
    return rows, bare


def report(bench, report_to):
    """Adds the rows. Being behind is said, and no failure: a clock is no judge of a test."""
    start = time.monotonic()
    try:
        rows, bare = run(bench)
    except RuntimeError as error:
        report_to.add("speed", "perftest in the guest", str(error), time.monotonic() - start)
        return
    took = (time.monotonic() - start) / len(rows)
    for program, size, rxe, ours in rows:
        latency = program.endswith("_lat")
        unit = "us" if latency else "MB/s"
        ratios = {way: rxe / figure if latency else figure / rxe for way, figure in ours.items()}
        name = f"{program} {size} B: rxe {rxe:.2f} {unit}" + "".join(
            f", {way} {figure:.2f} {unit} ({ratios[way]:.2f} times)" for way, figure in ours.items())
        behind = [way for way, ratio in ratios.items() if ratio < 1]
        if (program, size) in AHEAD and behind:
            name += f", BEHIND by {' and '.join(behind)}"
        if latency:
            name += f" (bare UDP sockets, 64 B: {bare:.2f} us)"
        report_to.add("speed", name, None, took, rxe=rxe, ours=ours, ratios=ratios)
