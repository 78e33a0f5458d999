"""Faults, provoked from each side against the other, and compared with what rxe gives rxe.

Each scene of pair/faults.c runs three times: between two rxe devices in the guest, with our side
asking, with our side answering. What the asking end gets, and the state both QPs end in, must be
the same; where it is not, `KNOWN` says what it is instead, and why, or it is a failure. Events are
shown, not compared: rxe raises few, and we raise those of the specification.
"""

import dataclasses
import subprocess

from bench import OURS, THEIRS

TOO_LONG = "rxe 6.1 answers a SEND that is too long with NAK 0x63, later kernels and we with 0x61"
RECEIVE = "the receive names its cause here; rxe has one status for all"
GATHER = "the protection error of the specification; rxe has LOC_QP_OP_ERR for all"
STOPS = GATHER + "; a send queue of UC and UD stops in SQE, where rxe's QP goes to ERR"
FLUSHED = "WR_FLUSH_ERR"

# (scene, who asks): what the asking and the answering end print instead, and why.
KNOWN = {
    ("misaligned_atomic", "ours"): (
        f"request 0 LOC_QP_OP_ERR; request 1 {FLUSHED}; ERR", None,
        "rxe's library refuses it with EINVAL when it is posted; we complete it with an error"),
    ("recv_wrong_key", "rxe"): (
        None, f"receive 0 LOC_PROT_ERR; receive 1 {FLUSHED}; ERR", RECEIVE),
    ("recv_read_only", "rxe"): (
        None, f"receive 0 LOC_PROT_ERR; receive 1 {FLUSHED}; ERR", RECEIVE),
    ("ud_too_long", "rxe"): (
        None, "RTS", "a datagram that does not fit is dropped; rxe's QP goes to ERR"),
}
for name in ("send_too_long", "send_too_long_one_packet"):
    KNOWN[name, "rxe"] = (f"request 0 REM_INV_REQ_ERR; request 1 {FLUSHED}; ERR",
                          f"receive 0 LOC_LEN_ERR; receive 1 {FLUSHED}; ERR", TOO_LONG)
for name in ("gather_wrong_key", "gather_other_domain"):
    KNOWN[name, "ours"] = (f"request 0 LOC_PROT_ERR; request 1 {FLUSHED}; ERR", None, GATHER)
for name in ("uc_gather_wrong_key", "ud_gather_wrong_key"):
    KNOWN[name, "ours"] = (f"request 0 LOC_PROT_ERR; request 1 {FLUSHED}; SQE", None, STOPS)

SHORT = ("psn_gap", "no_receive", "wrong_key_write", "bounds_read", "send_too_long",
         "invalidate_wrong_key")


@dataclasses.dataclass(frozen=True)
class View:
    """What one end printed."""
    completions: tuple
    events: tuple
    state: str

    @classmethod
    def of(cls, text):
        lines = text.strip().splitlines()
        return cls(tuple(x for x in lines if x.split()[0] not in ("event", "state")),
                   tuple(x[6:] for x in lines if x.startswith("event ")),
                   next((x[6:] for x in lines if x.startswith("state ")), "none"))

    def compared(self):
        return "; ".join((*self.completions, self.state))

    def __str__(self):
        return "; ".join((*self.completions, *(f"({event})" for event in self.events), self.state))


def scenes(bench):
    done = subprocess.run([bench.pair, "list"], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


def play(bench, scene, asker, answerer, port, more=(), seconds=40):
    """Plays a scene; views of the asking and the answering end. `more` follows the scene."""
    def start(side, words):
        if side == "ours":
            return bench.ours([bench.pair, *words], seconds)
        return bench.theirs("pair " + " ".join(words), seconds)

    def device(side, role):
        if side == "ours":
            return ["fast", "0"], OURS
        # Two devices of the guest on a veth pair, where both ends are rxe.
        if (asker, answerer) == ("rxe", "rxe"):
            return [f"rxe{role + 1}", "1"], f"10.99.1.{role + 1}"
        return ["rxe0", "1"], THEIRS

    more = [str(word) for word in more]
    place, address = device(answerer, 1)
    first = start(answerer, ["listen", *place, str(port), "-", scene, *more])
    if not bench.listens(answerer, port, seconds):
        first.stop()
        raise RuntimeError(f"no listener: {first.wait(seconds)[1]}")
    place, _ = device(asker, 0)
    second = start(asker, ["connect", *place, str(port), address, scene, *more])
    asked, answered = second.wait(seconds + 10), first.wait(seconds + 10)
    if asked[0] or answered[0]:
        raise RuntimeError(f"asking end ended with {asked[0]}:\n{asked[1]}\n"
                           f"answering end ended with {answered[0]}:\n{answered[1]}")
    return asked[1], answered[1]


def compare(scene, asker, views, reference):
    """`None`, or how this differs from what rxe gives rxe."""
    other = KNOWN.get((scene, asker), (None, None, ""))
    wrong = []
    for end, view, usual, known in zip(("asking", "answering"), views, reference, other):
        expected = known or usual.compared()
        if view.compared() != expected:
            wrong.append(f"{end} end: {view.compared()}\n  expected: {expected}")
    return "\n".join(wrong) or None
