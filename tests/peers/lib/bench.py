"""The bench: a network namespace with our side, a guest with rxe, and a tap between them.

    namespace srdma-PID-peer                     guest
      SRDMA programs ── tap `wire` ═══ QEMU ═══ eth0 ── rxe0
      10.99.0.1  fd99::1                       10.99.0.2  fd99::2

`Bench.ours` and `Bench.theirs` start commands on either side; both give a `Job`. What a bench has
made it removes, whatever happens in between.
"""

import base64
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

OURS, THEIRS = "10.99.0.1", "10.99.0.2"
OURS6, THEIRS6 = "fd99::1", "fd99::2"
MTU = 9000
TAP = "wire"
MAC = "52:54:00:99:00:02"
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(os.path.dirname(HERE))


class Skip(Exception):
    """This machine lacks the means; says which."""


class Broken(Exception):
    """The bench itself does not work."""


class Job:
    """A command that runs somewhere; `wait` gives its status and output."""

    def __init__(self):
        self.done = threading.Event()
        self.status, self.output = None, ""

    def finish(self, status, output):
        self.status, self.output = status, output
        self.done.set()

    def wait(self, seconds):
        if not self.done.wait(seconds):
            return 124, self.output
        return self.status, self.output

    def stop(self):
        """Ends it, where that can be done from here."""


class HostJob(Job):
    """A command in the namespace. Ends with its process group when time is up."""

    def __init__(self, words, env, seconds):
        super().__init__()
        self.process = subprocess.Popen(
            words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True)
        self.thread = threading.Thread(target=self._collect, args=(seconds,), daemon=True)
        self.thread.start()

    def _collect(self, seconds):
        status = None
        try:
            text, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            text, _ = self.process.communicate()
            status = 124
        if status is None:
            status = self.process.returncode
        self.finish(status, text.decode(errors="replace"))

    def stop(self):
        if self.process.poll() is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def means():
    """Raises `Skip` unless this machine can have a guest on a tap."""
    if os.geteuid() != 0:
        raise Skip("not root: a network namespace and a tap cannot be made")
    if not os.path.exists("/dev/net/tun"):
        raise Skip("there is no /dev/net/tun")
    for tool in ("ip", "qemu-system-x86_64", "cc"):
        if not shutil.which(tool):
            raise Skip(f"there is no `{tool}`")
    check = subprocess.run([f"{HERE}/image", "--check"], capture_output=True, text=True)
    if check.returncode:
        raise Skip(check.stdout.strip().removeprefix("skip: ") or check.stderr.strip())


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise Skip(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Bench:
    """Everything above, as a context manager."""

    def __init__(self, cli, programs=(), processors=2):
        means()
        self.cli, self.programs, self.processors = cli, programs, processors
        self.netns = f"srdma-{os.getpid()}-peer"
        self.folder = self.qemu = self.channel = self.dump = None
        self.jobs, self.next, self.lock = {}, 1, threading.Lock()
        self.up = threading.Event()
        self.mine = []

    # --- making and removing -----------------------------------------------------------------

    def __enter__(self):
        try:
            image = subprocess.run([f"{HERE}/image"], stdout=subprocess.PIPE, text=True)
            if image.returncode:
                raise Skip(image.stdout.strip().removeprefix("skip: "))
            self.image = image.stdout.strip()
            self.folder = tempfile.mkdtemp(prefix="srdma-peer-")
            self._network()
            self._boot()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for job in self.mine:
            job.stop()
        self.capture_end()
        if self.qemu and self.qemu.poll() is None:
            self.qemu.kill()
            self.qemu.wait()
        if self.channel:
            self.channel.close()
        subprocess.run(["ip", "netns", "del", self.netns], capture_output=True)
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _network(self):
        ip("netns", "add", self.netns)
        ip("-n", self.netns, "link", "set", "lo", "up")
        ip("netns", "exec", self.netns, "ip", "tuntap", "add", "dev", TAP, "mode", "tap", "vnet_hdr")
        # A UC message of 1 MiB must find room in the tap's queue: nobody sends it again.
        ip("-n", self.netns, "link", "set", TAP, "mtu", str(MTU), "txqueuelen", "10000", "up")
        ip("-n", self.netns, "addr", "add", f"{OURS}/24", "dev", TAP)
        ip("-n", self.netns, "addr", "add", f"{OURS6}/64", "dev", TAP, "nodad")
        # Neighbours are known: one that is looked up first has no room for a UC message meanwhile.
        for address in (THEIRS, THEIRS6):
            ip("-n", self.netns, "neigh", "add", address, "lladdr", MAC, "dev", TAP)
        self.config = f"{self.folder}/devices.toml"
        with open(self.config, "w", encoding="ascii") as file:
            for name, gso in (("fast", "true"), ("plain", "false")):
                file.write(f'[[device]]\nname = "{name}"\non = ["{OURS}", "{OURS6}"]\n'
                           f"gso = {gso}\ngro = {gso}\n")
        self.env = {**os.environ, "SRDMA_CONFIG": self.config}
        self.env.pop("SRDMA_DEVICES", None)

    def _pair(self):
        """The program that checks data and provokes faults, for both sides."""
        self.pair = f"{self.folder}/pair"
        sources = [f"{HERE}/pair/{name}" for name in ("pair.c", "end.c", "data.c", "faults.c")]
        done = subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-o", self.pair, *sources,
                               "-libverbs"], capture_output=True, text=True)
        if done.returncode:
            raise Broken(f"pair does not build\n{done.stderr}")
        return self.pair

    def _initrd(self):
        """The image's initial file system, with init, agent and our programs on top."""
        top, path = f"{self.folder}/top", f"{self.folder}/initrd"
        os.makedirs(f"{top}/usr/sbin")
        for name in os.listdir(f"{HERE}/guest"):
            target = f"{top}/init" if name == "init" else f"{top}/usr/sbin/{name}"
            shutil.copy(f"{HERE}/guest/{name}", target)
        for program in (self._pair(), *self.programs):
            shutil.copy(program, f"{top}/usr/sbin/")
        # Archives one behind the other: the kernel unpacks all, and the last word counts.
        shutil.copy(f"{self.image}/initrd.cpio", path)
        with open(path, "ab") as file:
            names = subprocess.run(["find", ".", "-mindepth", "1"], cwd=top, stdout=subprocess.PIPE,
                                   check=True).stdout
            subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=top, input=names,
                           stdout=file, check=True)
        return path

    def _boot(self):
        kernel = f"{self.image}/vmlinux"
        if not os.path.exists(kernel):
            kernel = f"{self.image}/vmlinuz"
        accel = os.environ.get("SRDMA_PEERS_ACCEL", "tcg,thread=multi,tb-size=512")
        agent, self.console = f"{self.folder}/agent", f"{self.folder}/console"
        # QEMU's processors share one time stamp counter and do not say so. Without being told, the
        # kernel takes the HPET, and each look at the clock leaves for a device: 4 us, not 0.3.
        words = [
            "ip", "netns", "exec", self.netns, "qemu-system-x86_64", "-accel", accel, "-M", "q35",
            "-cpu", "host" if accel.startswith("kvm") else "max", "-smp", str(self.processors),
            "-m", "1536", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-kernel", kernel, "-initrd", self._initrd(),
            "-append", "console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable "
            f"rdinit=/init peer.ip={THEIRS}/24 peer.ip6={THEIRS6}/64 peer.mtu={MTU}",
            "-serial", f"file:{self.console}",
            "-object", "rng-random,id=rng,filename=/dev/urandom",
            "-device", "virtio-rng-pci,rng=rng", "-device", "virtio-serial-pci",
            "-chardev", f"socket,id=agent,path={agent},server=on,wait=off",
            "-device", "virtserialport,chardev=agent,name=agent",
            "-netdev", f"tap,id=net,ifname={TAP},script=no,downscript=no,vhost=off",
            "-device", f"virtio-net-pci,netdev=net,mac={MAC},host_mtu={MTU}"]
        log = open(f"{self.folder}/qemu.log", "wb")
        self.qemu = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.channel = self._connect(agent)
        threading.Thread(target=self._listen, daemon=True).start()
        if not self.up.wait(180):
            raise Broken(f"the guest does not come up\n{self._last_words()}")
        ours = self.here(["cat", f"/sys/class/net/{TAP}/address"]).wait(10)[1].strip()
        for address in (OURS, OURS6):
            self.ask(f"ip neigh replace {address} lladdr {ours} dev eth0 nud permanent")
        with open(f"{self.image}/versions", encoding="ascii") as file:
            self.versions = dict(line.split() for line in file)

    def _connect(self, path):
        channel = socket.socket(socket.AF_UNIX)
        for _ in range(200):
            try:
                channel.connect(path)
                return channel
            except OSError:
                if self.qemu.poll() is not None:
                    raise Broken(f"QEMU ended\n{self._last_words()}") from None
                time.sleep(0.05)
        raise Broken("QEMU does not open its socket")

    def _last_words(self):
        text = ""
        for path in (self.console, f"{self.folder}/qemu.log"):
            if os.path.exists(path):
                with open(path, encoding="utf-8", errors="replace") as file:
                    text += "".join(file.readlines()[-12:])
        return text

    # --- the guest's side ----------------------------------------------------------------------

    def _listen(self):
        for line in self.channel.makefile("r", encoding="ascii", errors="replace"):
            name, status, output = (line.rstrip("\n").split(" ", 2) + ["", ""])[:3]
            if name == "up":
                self.up.set()
                continue
            with self.lock:
                job = self.jobs.pop(int(name), None)
            if job:
                job.finish(int(status), base64.b64decode(output).decode(errors="replace"))
        with self.lock:
            jobs, self.jobs = self.jobs, {}
        for job in jobs.values():
            job.finish(126, "the guest is gone\n" + self._last_words())

    def theirs(self, command, seconds=20):
        """Starts a shell command in the guest."""
        job = Job()
        text = base64.b64encode(command.encode()).decode()
        with self.lock:
            name, self.next = self.next, self.next + 1
            self.jobs[name] = job
            self.channel.sendall(f"{name} {seconds} {text}\n".encode())
        return job

    def ask(self, command, seconds=20):
        """Runs a command in the guest, which must succeed; its output."""
        status, output = self.theirs(command, seconds).wait(seconds + 20)
        if status:
            raise Broken(f"in the guest: {command}\n{output}")
        return output.strip()

    # --- our side ------------------------------------------------------------------------------

    def here(self, words, seconds=20, env=None):
        """Starts a command in the namespace as it is."""
        job = HostJob(["ip", "netns", "exec", self.netns, *words], env or self.env, seconds)
        self.mine.append(job)
        return job

    def ours(self, words, seconds=20, env=None):
        """Starts a verbs program in the namespace, on our library."""
        env = {**self.env, **(env or {})}
        return self.here([self.cli, "run", "--quiet", "--", *words], seconds, env)

    def counters(self):
        """What both sides have counted, to explain a run that hangs."""
        done = subprocess.run([self.cli, "counters"], capture_output=True, text=True)
        theirs = self.theirs("cd /sys/class/infiniband/rxe0/ports/1/hw_counters; grep . *").wait(20)
        return f"--- our counters\n{done.stdout}\n--- rxe's\n{theirs[1]}"

    def await_port(self, port, seconds=15):
        """Waits until somebody listens on a TCP port of the namespace."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for table in ("tcp", "tcp6"):
                with open(f"/proc/{self.qemu.pid}/net/{table}", encoding="ascii") as file:
                    for line in file.readlines()[1:]:
                        words = line.split()
                        if words[1].endswith(f":{port:04X}") and words[3] == "0A":
                            return True
            time.sleep(0.01)
        return False

    # --- either side ---------------------------------------------------------------------------

    def listens(self, side, port, seconds):
        """Waits until somebody listens on a TCP port of a side."""
        if side == "ours":
            return self.await_port(port)
        return self.theirs(f"await_port {port}", seconds).wait(seconds)[0] == 0

    # --- captures ------------------------------------------------------------------------------

    def capture(self, path):
        """Writes what passes the tap into a pcap file, until `capture_end`."""
        self.dump = subprocess.Popen(
            ["ip", "netns", "exec", self.netns, "dumpcap", "-q", "-P", "-i", TAP, "-B", "64",
             "-f", "udp port 4791", "-w", path],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        # It names the file when it has begun.
        for line in self.dump.stderr:
            if line.startswith(b"File:"):
                return
        raise Broken("dumpcap does not start")

    def capture_end(self):
        if self.dump and self.dump.poll() is None:
            time.sleep(0.3)
            self.dump.send_signal(signal.SIGINT)
            self.dump.communicate()
        self.dump = None
