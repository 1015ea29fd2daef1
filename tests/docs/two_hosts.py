"""Two hosts: a client and a server in namespaces of this machine, each with its own network, host name,
home folder, /etc, /run, /var and /opt. The server has emulated GPUs in the place of NVIDIA's driver.
"""
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

SECONDS = 60  # No step of a page takes longer on a busy machine.
SERVER_NAME = "gpu.example.org"
ADDRESSES = {"client": "192.0.2.10", "server": "192.0.2.20"}
TOKEN = re.compile(r"gpurun1_\S+")
PROMPT = re.compile(r"[:\]?] $")

# Runs in the new namespaces of a host. /etc is a copy, so that pages can write there.
SET_UP = r"""
set -eu
host=$1 name=$2 kept=$3 installed=$4 emulated=$5
hostname "$name"
ip link set lo up
mkdir -p "$kept/etc" "$kept/home" "$kept/work"
cp -a /etc/. "$kept/etc/"
rm -rf "$kept/etc/gpurun"
printf '127.0.0.1 localhost\n%s %s\n%s laptop\n' "$6" "$7" "$8" > "$kept/etc/hosts"
mount --bind "$kept/etc" /etc
for folder in /run /var/lib /var/cache /opt; do mount -t tmpfs tmpfs "$folder"; done
mkdir /opt/gpurun
mount --bind "$installed" /opt/gpurun
if [ "$host" = server ]; then
  mkdir -p /run/opengl-driver/lib
  ln -s "$emulated" /run/opengl-driver/lib/libcuda.so.1
fi
"""


class Host:
    def __init__(self, role, folder, environment):
        self.role, self.folder, self.environment = role, folder, environment
        self.holder = subprocess.Popen(["unshare", "--mount", "--net", "--uts", "--propagation", "private",
                                        "sleep", "infinity"])
        end = time.monotonic() + SECONDS
        while not self._has_namespaces():
            if time.monotonic() > end:
                raise TimeoutError("no namespaces for a host")
            select.select([], [], [], 0.01)

    def _has_namespaces(self):
        """unshare(1) becomes the holder once it has made them all."""
        with open(f"/proc/{self.holder.pid}/cmdline", encoding="utf-8") as file:
            return file.read().startswith("sleep")

    def words(self, *words):
        return ["nsenter", "-t", str(self.holder.pid), "-m", "-n", "-u", f"--wd={self.folder}/work", *words]

    def set_up(self, *words):
        subprocess.run(["nsenter", "-t", str(self.holder.pid), "-m", "-n", "-u", *words], check=True,
                       timeout=SECONDS)

    def start(self, script, **options):
        return subprocess.Popen(self.words("bash", "-euc", script), env=self.environment,
                                start_new_session=True, **options)


class TwoHosts:
    """`with` ends the hosts and all that runs on them."""

    def __init__(self, build, programs):
        self.build, self.programs = build, programs
        self.folder = tempfile.TemporaryDirectory()
        self.log = os.path.join(self.folder.name, "served.log")
        self.served, self.token, self.hosts = None, None, {}

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.stop_serving()
        for host in self.hosts.values():
            host.holder.kill()
            host.holder.wait()
        self.folder.cleanup()

    def _make(self):
        installed = os.path.join(self.folder.name, "gpurun")
        subprocess.run(["cmake", "--install", self.build, "--prefix", installed], check=True,
                       capture_output=True, timeout=4 * SECONDS)
        emulated = "/opt/gpurun/lib/gpurun/emulated/libcuda.so.1"
        for role in ("client", "server"):
            kept = os.path.join(self.folder.name, role)
            environment = {"HOME": f"{kept}/home", "USER": "root", "TERM": "dumb", "LANG": "C.UTF-8",
                           "PATH": "/opt/gpurun/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
            if role == "server":
                environment["GPURUN_EMULATED"] = "devices=2"
            host = self.hosts[role] = Host(role, kept, environment)
            host.set_up("bash", "-c", SET_UP, "set_up", role, "laptop" if role == "client" else SERVER_NAME, kept,
                        installed, emulated, ADDRESSES["server"], SERVER_NAME, ADDRESSES["client"])
        self._connect()
        work = f"{self.hosts['client'].folder}/work"
        for name, path in self.programs.items():
            os.makedirs(os.path.dirname(f"{work}/{name}"), exist_ok=True)
            os.symlink(path, f"{work}/{name}")

    def _connect(self):
        client, server = self.hosts["client"], self.hosts["server"]
        client.set_up("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "far")
        client.set_up("ip", "link", "set", "far", "netns", str(server.holder.pid))
        server.set_up("ip", "link", "set", "far", "name", "eth0")
        for role, host in self.hosts.items():
            host.set_up("ip", "address", "add", f"{ADDRESSES[role]}/24", "dev", "eth0")
            host.set_up("ip", "link", "set", "eth0", "up")

    def run(self, block):
        """Returns None, or what is wrong with the block's run."""
        if block.keeps_running:
            return self._serve(block)
        begun = time.time()
        status, output = self._run_to_its_end(block)
        for token in TOKEN.findall(output) + self._tokens_in_files(begun):
            self.token = token
        wrong = [f"exit status {status}, not {block.status}"] if status != block.status else []
        wrong += [f"does not print '{text}'" for text in block.prints if text not in output]
        return f"{block.where()}: {'; '.join(wrong)}\n{block.text}---\n{output}" if wrong else None

    def _tokens_in_files(self, since):
        """Tokens in small files that the server's blocks have written since then."""
        found = []
        own = self.hosts["server"].folder
        for folder, _, names in (*os.walk(f"{own}/home"), *os.walk(f"{own}/work")):
            for path in (os.path.join(folder, name) for name in names):
                if os.path.getmtime(path) >= since - 1 and os.path.getsize(path) < 4096:
                    with open(path, encoding="utf-8", errors="replace") as file:
                        found += [(os.path.getmtime(path), token) for token in TOKEN.findall(file.read())]
        return [token for _, token in sorted(found)]

    def _run_to_its_end(self, block):
        inputs = [text.replace("TOKEN", self.token or "no token was made") for text in block.inputs]
        if inputs:
            terminal, other = os.openpty()
        else:
            terminal, other = os.pipe()
        process = self.hosts[block.host].start(block.text, stdin=other if inputs else subprocess.DEVNULL,
                                               stdout=other, stderr=other)
        os.close(other)
        output, answered = b"", 0
        end = time.monotonic() + SECONDS
        while select.select([terminal], [], [], max(0, end - time.monotonic()))[0]:
            try:
                got = os.read(terminal, 1 << 16)
            except OSError:  # A terminal reports its end so.
                break
            if not got:
                break
            output += got
            if inputs and PROMPT.search(output[answered:].decode(errors="replace")):
                answered = len(output)
                os.write(terminal, inputs.pop(0).encode() + b"\n")
        else:
            os.killpg(process.pid, signal.SIGKILL)
            output += f"\n(still running after {SECONDS} s)\n".encode()
        os.close(terminal)
        status = process.wait()
        return status, output.decode(errors="replace").replace("\r\n", "\n")

    def _serve(self, block):
        self.stop_serving()
        with open(self.log, "wb") as log:
            self.served = self.hosts[block.host].start(block.text, stdin=subprocess.DEVNULL,
                                                       stdout=log, stderr=subprocess.STDOUT)
        end = time.monotonic() + SECONDS
        while True:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                output = log.read()
            if re.search("(?m)^gpurund: ready on .*\n", output):
                missing = [text for text in block.prints if text not in output]
                return f"{block.where()}: does not print {missing}\n{output}" if missing else None
            if self.served.poll() is not None or time.monotonic() > end:
                return f"{block.where()}: does not serve\n{block.text}---\n{output}"
            select.select([], [], [], 0.02)

    def stop_serving(self):
        """Ends what a block left running. A server that does not end in time is an error."""
        served, self.served = self.served, None
        if served is None or served.poll() is not None:
            return
        os.killpg(served.pid, signal.SIGTERM)
        try:
            served.wait(SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(served.pid, signal.SIGKILL)
            served.wait()
            raise


def missing_tools():
    """What this machine lacks for two hosts, or nothing."""
    if os.geteuid() != 0:
        return "root"
    lacking = [tool for tool in ("ip", "unshare", "nsenter", "mount", "hostname") if shutil.which(tool) is None]
    if lacking:
        return " ".join(lacking)
    tried = subprocess.run(["unshare", "--mount", "--net", "--uts", "ip", "link", "add", "near", "type", "veth",
                            "peer", "name", "far"], capture_output=True, text=True, timeout=SECONDS)
    return tried.stderr.strip() if tried.returncode != 0 else ""
