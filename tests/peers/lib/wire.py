"""What a capture of the tap shows: every packet's ICRC, lengths, opcode and PSN, and who repeated.

Nothing here is shared with the product: the checks are written from the packet formats alone.

    Ethernet 14 | IPv4 20 or IPv6 40 | UDP 8 | BTH 12 | headers of the opcode | payload, pad | ICRC 4
"""

import collections
import dataclasses
import shutil
import socket
import struct
import subprocess
import zlib

PORT = 4791
MAGICS = {b"\xd4\xc3\xb2\xa1": ("<", 1e-6), b"\xa1\xb2\xc3\xd4": (">", 1e-6),
          b"\x4d\x3c\xb2\xa1": ("<", 1e-9), b"\xa1\xb2\x3c\x4d": (">", 1e-9)}
# Operation: bytes of headers behind the BTH, and the payload it has: none, any up to the MTU, at
# least one byte, or exactly the MTU.
NONE, ANY, SOME, FULL = range(4)
RC = {0x00: (0, FULL), 0x01: (0, FULL), 0x02: (0, SOME), 0x03: (4, SOME), 0x04: (0, ANY),
      0x05: (4, ANY), 0x06: (16, FULL), 0x07: (0, FULL), 0x08: (0, SOME), 0x09: (4, SOME),
      0x0a: (16, ANY), 0x0b: (20, ANY), 0x0c: (16, NONE), 0x0d: (4, FULL), 0x0e: (0, FULL),
      0x0f: (4, SOME), 0x10: (4, ANY), 0x11: (4, NONE), 0x12: (12, NONE), 0x13: (28, NONE),
      0x14: (28, NONE), 0x16: (4, SOME), 0x17: (4, ANY)}
OPCODES = dict(RC)
OPCODES.update({0x20 + op: shape for op, shape in RC.items() if op <= 0x0b})
OPCODES.update({0x64: (8, ANY), 0x65: (12, ANY)})
# Ours, of the class that is left to manufacturers: how much of what nobody acknowledges was taken?
# Others drop it, so there are few.
QUESTION, QUESTIONS = 0xe0, 8
OPCODES[QUESTION] = (28, NONE)
ANSWERS = {0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12}
READ, ACK = 0x0c, 0x11
STARTS = {0x00, 0x04, 0x05, 0x06, 0x0a, 0x0b, 0x0c, 0x13, 0x14, 0x17}
IN_SEND, IN_WRITE = {0x01, 0x02, 0x03, 0x16}, {0x07, 0x08, 0x09}


@dataclasses.dataclass(frozen=True)
class Packet:
    time: float
    source: bytes
    target: bytes
    op: int
    qpn: int
    psn: int
    headers: bytes
    payload: int     # bytes without pad
    faults: tuple    # what is wrong with it by itself


def frames(path):
    with open(path, "rb") as file:
        data = file.read()
    order, unit = MAGICS[data[:4]]
    at = 24
    while at + 16 <= len(data):
        seconds, fraction, kept, full = struct.unpack_from(order + "IIII", data, at)
        at += 16
        yield seconds + fraction * unit, data[at:at + kept], kept == full
        at += kept


def address(text):
    """The bytes of an address, as they stand in packets."""
    return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)


def icrc(header, udp):
    """CRC-32 over eight bytes of ones and the packet, with what routers change set to ones."""
    header, udp = bytearray(header), bytearray(udp)
    if header[0] >> 4 == 4:
        header[1] = header[8] = 0xff
        header[10:12] = b"\xff\xff"
    else:
        header[0] |= 0x0f
        header[1:4] = b"\xff\xff\xff"
        header[7] = 0xff
    udp[6:8] = b"\xff\xff"
    udp[12] = 0xff
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + bytes(header) + bytes(udp)))


def take_apart(time, frame, whole):
    """A `Packet`, or `None` for what is no RoCEv2."""
    kind, at = struct.unpack_from("!H", frame, 12)[0], 14
    if kind == 0x0800:
        size = (frame[at] & 15) * 4
        total, protocol = struct.unpack_from("!H", frame, at + 2)[0], frame[at + 9]
        source, target = frame[at + 12:at + 16], frame[at + 16:at + 20]
    elif kind == 0x86dd:
        size, protocol = 40, frame[at + 6]
        total = 40 + struct.unpack_from("!H", frame, at + 4)[0]
        source, target = frame[at + 8:at + 24], frame[at + 24:at + 40]
    else:
        return None
    header, udp = frame[at:at + size], frame[at + size:at + total]
    if protocol != 17 or len(udp) < 8 or struct.unpack_from("!H", udp, 2)[0] != PORT:
        return None
    faults = []
    if struct.unpack_from("!H", udp, 4)[0] != total - size:
        faults.append("UDP length")
    if len(udp) < 8 + 12 + 4:
        return Packet(time, source, target, -1, 0, 0, b"", 0, ("too short",))
    if whole and icrc(header, udp[:-4]) != udp[-4:]:
        faults.append("ICRC")
    op, flags, _, qpn, word = struct.unpack_from("!BBHII", udp, 8)
    pad, version = flags >> 4 & 3, flags & 15
    length, _ = OPCODES.get(op, (0, ANY))
    payload = len(udp) - 8 - 12 - length - pad - 4
    if op not in OPCODES:
        faults.append(f"opcode {op:#x}")
    if version:
        faults.append("transport version")
    if payload < 0 or (payload + pad) % 4 or pad and not payload:
        faults.append("length or pad")
    return Packet(time, source, target, op, qpn & 0xffffff, word & 0xffffff,
                  udp[20:20 + length], payload, tuple(faults))


def after(psn, other):
    """How far `psn` is behind `other`, from -2^23."""
    return (psn - other + 0x800000 & 0xffffff) - 0x800000


class Flow:
    """Requests that one end sends to one QP, in order of PSN."""

    def __init__(self):
        self.next = None      # the PSN that a new request has
        self.last = None      # opcode of the newest request
        self.mtu = 0
        self.read = None      # a READ whose answer tells the MTU: its PSN and headers
        self.reads = set()    # PSNs of responses
        self.acked = None     # the newest PSN that the other end has acknowledged
        self.acked_at = {}    # when it did, by PSN


class Check:
    """All packets of a capture; `faults` has what is wrong with them."""

    # Seconds that an acknowledgement and a repetition may cross.
    CROSSING = 0.1
    # Seconds between packets of one burst.
    BURST = 0.02

    def __init__(self, path, ours):
        self.ours, self.faults, self.wrong = ours, [], 0
        self.flows, self.sent, self.answers, self.asked = {}, {}, {}, {}
        self.needless_at = {True: 0.0, False: 0.0}
        # By who sent it: packets, repetitions, needless ones, and kinds of answers.
        self.counts = {True: collections.Counter(), False: collections.Counter()}
        for time, frame, whole in frames(path):
            packet = take_apart(time, frame, whole)
            if packet is None:
                continue
            mine = packet.source in ours
            self.counts[mine]["packets"] += 1
            for fault in packet.faults:
                self._fault(packet, mine, fault)
            if packet.op in ANSWERS:
                self._answer(packet, mine)
            elif packet.op in RC:
                self._request(packet, mine)
            elif packet.op == QUESTION:
                self._question(packet, mine)

    def __str__(self):
        lines = []
        for mine, name in ((True, "ours"), (False, "rxe")):
            words = (f"{count} {what}" for what, count in sorted(self.counts[mine].items()))
            lines.append(f"{name}: {', '.join(words)}")
        return "; ".join(lines)

    def _fault(self, packet, mine, what):
        self.wrong += 1
        if len(self.faults) < 20:
            who = "ours" if mine else "rxe"
            self.faults.append(f"{packet.time:.6f} {who} op {packet.op:#04x} QP {packet.qpn:#x} "
                               f"PSN {packet.psn:#x}: {what}")

    def _answer(self, packet, mine):
        kind = packet.headers[0] >> 5 if packet.op in (ACK, 0x0d, 0x0f, 0x10, 0x12) else 0
        if packet.op == ACK:
            name = {0: "ACK", 1: "RNR NAK"}.get(kind, f"NAK {packet.headers[0]:#x}")
            self.counts[mine][name] += 1
        else:
            self.counts[mine]["responses"] += 1
        # The first answer that has the PSN of a request tells whose answers these are.
        key = packet.source, packet.target, packet.qpn
        flow = self.sent.get((packet.target, packet.source, packet.psn))
        flow = self.answers.setdefault(key, flow) if flow else self.answers.get(key)
        if flow is None:
            return
        if packet.op == 0x0d and flow.read and flow.read[0] == packet.psn:
            flow.mtu = flow.mtu or packet.payload
            flow.next, flow.read = packet.psn + responses(flow.read[1], flow.mtu) & 0xffffff, None
        done = packet.psn if kind == 0 else packet.psn - 1 & 0xffffff
        if packet.op != ACK:
            flow.acked_at.setdefault(packet.psn, packet.time)
        first = done if flow.acked is None else flow.acked + 1 & 0xffffff
        if after(done, first) < 0:
            return
        for step in range(after(done, first) + 1):
            psn = first + step & 0xffffff
            # What acknowledges all before it says nothing of responses that were lost.
            if psn not in flow.reads:
                flow.acked_at.setdefault(psn, packet.time)
        flow.acked = done

    def _question(self, packet, mine):
        asked = self.asked.setdefault((packet.target, packet.qpn), [])
        asked[:] = [time for time in asked if packet.time - time < 1] + [packet.time]
        self.counts[mine]["questions"] += 1
        if packet.payload or len(asked) > QUESTIONS:
            self._fault(packet, mine, f"{packet.payload} bytes, {len(asked)} in a second")

    def _request(self, packet, mine):
        flow = self.flows.setdefault((packet.source, packet.target, packet.qpn), Flow())
        self.sent[packet.source, packet.target, packet.psn] = flow
        shape = RC[packet.op][1]
        if shape == FULL:
            flow.mtu = flow.mtu or packet.payload
            if packet.payload != flow.mtu:
                self._fault(packet, mine, f"{packet.payload} bytes where the MTU is {flow.mtu}")
        if shape == SOME and not packet.payload or flow.mtu and packet.payload > flow.mtu:
            self._fault(packet, mine, f"{packet.payload} bytes of payload")
        ahead = 0 if flow.next is None else after(packet.psn, flow.next)
        if ahead < 0:
            self.counts[mine]["repeated"] += 1
            acked = flow.acked_at.get(packet.psn)
            if acked is not None and packet.time - acked > self.CROSSING:
                self.counts[mine]["needless"] += 1
                # What a process sends at once that did not run for a while counts as one.
                if packet.time - self.needless_at[mine] > self.BURST:
                    self.counts[mine]["needless bursts"] += 1
                self.needless_at[mine] = packet.time
            return
        # What rxe sends was lost and put out of order by netem before it came here.
        if mine and ahead > 0:
            self._fault(packet, mine, f"PSN {ahead} ahead")
        if mine and flow.last is not None and not follows(flow.last, packet.op):
            self._fault(packet, mine, f"follows {flow.last:#04x}")
        flow.last = packet.op
        flow.next = packet.psn + 1 & 0xffffff
        if packet.op == READ:
            for step in range(responses(packet.headers, flow.mtu or 256)):
                flow.reads.add(packet.psn + step & 0xffffff)
            flow.next = packet.psn + responses(packet.headers, flow.mtu) & 0xffffff
            if not flow.mtu:
                flow.next, flow.read = None, (packet.psn, packet.headers)


def follows(last, op):
    """True if a request packet may stand behind another."""
    if last in (0x00, 0x01):
        return op in IN_SEND
    if last in (0x06, 0x07):
        return op in IN_WRITE
    return op in STARTS


def responses(reth, mtu):
    """PSNs that a READ takes: as many as its answer has packets."""
    length = struct.unpack_from("!I", reth, 12)[0]
    return max(1, -(-length // mtu)) if mtu else 1


def malformed(path):
    """What tshark finds malformed in the headers, as text; `None` where there is no tshark.

    It also guesses what payloads could be (RPC over RDMA, Ethernet types), and calls those
    malformed that it guessed wrong: the dissector that gave up then stands behind that of the
    headers. One byte 0x08 with its pad is an Ethernet type to it, and what follows no IP packet.
    """
    if not shutil.which("tshark"):
        return None
    done = subprocess.run(["tshark", "-n", "-r", path, "-Y", "_ws.malformed", "-T", "fields",
                           "-e", "frame.number", "-e", "frame.protocols", "-e", "_ws.col.Info"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return "\n".join(line for line in done.stdout.splitlines()
                     if not is_guess(line.split("\t")[1].split(":")))


def is_guess(protocols):
    """It is what tshark took a payload for, or none of what we look at."""
    headers = ("eth", "ethertype", "ip", "ipv6", "udp", "infiniband")
    behind = "infiniband" in protocols and protocols[-1] != "infiniband"
    return behind or protocols[-1] not in headers
