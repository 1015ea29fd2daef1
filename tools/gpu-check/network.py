"""Network: gpurun over the RDMA ports of this machine, beside perftest on the same ports.

On one host each port talks to itself, through the card. Between two hosts one runs `run OUT --serve ADDRESS`,
and the other `run OUT --only network --server ADDRESS --token-file FILE`. The bars are those of docs/results:
a round trip takes at most 1.3 of that of `ib_send_lat -e`, and copies reach 0.8 of `ib_write_bw`.
"""
import glob
import ipaddress
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

PERFTEST_PORT = 18515  # The first. Each program has its own, so that both ends agree without words.
TYPICAL_US, AVERAGE = 4, 3  # Places in perftest's last row.
MIB = 1 << 20  # perftest's MB.
FENCE_MAX, BULK_MIN = 1.3, 0.8
GPURUND_PORT = 4790
SECONDS = 40  # Of one program.
# Name: (program and options, place of the figure, factor, unit). A latency is half a round trip.
PERFTESTS = {
    "ib_send_lat -e": (["ib_send_lat", "-e", "-n", "5000", "-s", "8"], TYPICAL_US, 2, "us there and back"),
    "ib_send_lat": (["ib_send_lat", "-n", "5000", "-s", "8"], TYPICAL_US, 2, "us there and back"),
    "ib_write_bw": (["ib_write_bw", "-n", "2000", "-s", str(MIB)], AVERAGE, MIB / 1e9, "GB/s"),
    "ib_write_bw, GPU memory": (["ib_write_bw", "-n", "2000", "-s", str(MIB), "--use_cuda=0"], AVERAGE, MIB / 1e9,
                                "GB/s"),
}


class Port:
    """An active port with the GID that is an IPv4 address. RoCE v2 comes first."""

    def __init__(self, device, number, gid_index, address):
        self.device, self.number, self.gid_index, self.address = device, number, gid_index, address
        self.name = f"{device}:{number}"


def text_of(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:  # A GID that is not there cannot be read.
        return ""


def ports(root="/sys/class/infiniband"):
    """The ports that can carry sessions, by name."""
    found = []
    for folder in sorted(glob.glob(os.path.join(root, "*/ports/*"))):
        if not text_of(os.path.join(folder, "state")).endswith("ACTIVE"):
            continue
        gids = []
        for path in glob.glob(os.path.join(folder, "gids/*")):
            index, gid = int(os.path.basename(path)), text_of(path)
            mapped = ipaddress.IPv6Address(gid).ipv4_mapped if gid else None
            if mapped is not None:
                gids.append((text_of(os.path.join(folder, "gid_attrs/types", str(index))) != "RoCE v2", index, str(mapped)))
        if gids:
            _, index, address = min(gids)
            found.append(Port(folder.split("/")[-3], int(os.path.basename(folder)), index, address))
    return found


def perftest_command(name, port, server=None):
    words = PERFTESTS[name][0]
    place = PERFTEST_PORT + list(PERFTESTS).index(name)
    return [words[0], "-F", "-d", port.device, "-i", str(port.number), "-x", str(port.gid_index), "-p", str(place), *words[1:],
            *([] if server is None else [server])]


def figure(name, output):
    """The number of a run in the row's unit, or None."""
    rows = re.findall(r"(?m)^ *#bytes .*\n +(.+)$", output)
    _, place, factor, _ = PERFTESTS[name]
    words = rows[-1].split() if rows else []
    return float(words[place]) * factor if len(words) > place else None


def perftest(name, port, server=None, seconds=SECONDS):
    """Runs one program against `server`, or against a server of its own on the same port of this host. Returns
    (figure or None, output)."""
    far = None
    until = time.monotonic() + seconds
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        if server is None:
            far = subprocess.Popen(perftest_command(name, port), stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        output = ""
        try:
            while time.monotonic() < until and (far is None or far.poll() is None):
                near = subprocess.run(perftest_command(name, port, server or port.address), stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                      timeout=max(1, until - time.monotonic()))
                output = near.stdout
                # Its server may not listen yet.
                if near.returncode == 0 or "Couldn't connect" not in output:
                    return (figure(name, output) if near.returncode == 0 else None), output
                time.sleep(0.1)
        except subprocess.TimeoutExpired as late:
            output = (late.stdout or b"").decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
        finally:
            if far is not None:
                far.kill()
                far.wait()
                said.seek(0)
                output += "\nits server:\n" + said.read()
    return None, output


class Server:
    """A gpurund of this build at the port's address."""

    def __init__(self, options, port, listens, words=()):
        self.folder = tempfile.TemporaryDirectory()
        reading, writing = os.pipe()
        self.secret = os.path.join(self.folder.name, "secret")
        with os.fdopen(os.open(self.secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(os.urandom(24).hex())
        self.process = subprocess.Popen(
            [os.path.join(options.build, "bin/gpurund"), "--listen", f"{port.address}:{listens}", "--fabric", port.name,
             "--secret-file", self.secret, "--ready-fd", str(writing), *words,
             *(["--driver", options.driver] if options.driver else [])],
            pass_fds=[writing], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            env={**os.environ, "STATE_DIRECTORY": self.folder.name})
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8") as ready:
            self.address = ready.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def netperf(options, port, address, words, seconds):
    """gpurun's own figures over each transport. Returns (list of transports, output)."""
    asked = subprocess.run(
        [os.path.join(options.build, "bin/gpuctl"), "netperf", address, "--json", "--seconds", "3", *words],
        env={**os.environ, "GPURUN_TRUST_FABRIC": port.name, "GPURUN_TRANSPORTS": "rdma,tcp"}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, errors="replace", timeout=max(1, seconds))
    try:
        return json.loads(asked.stdout)["transports"], asked.stdout + asked.stderr
    except (ValueError, KeyError):
        return [], asked.stdout + asked.stderr


def compare(report, port, transport, references):
    """A row for one transport, with its ratios to perftest."""
    trip, copies = transport["round_trip_us"]["p50"], transport["to_device_gb_per_second"]["pinned"]
    said = f"round trip {trip:.1f} us, result {transport['result_us']['p50']:.1f} us, copies to the GPU {copies:.2f} GB/s"
    numbers = {"round_trip_us": trip, "to_device_gb_per_second": copies}
    right = True
    if transport["transport"] == "rdma":
        said += ", straight into GPU memory (GPUDirect)" if transport.get("gpudirect") else ", through the server's memory"
    latency, bandwidth = references.get("ib_send_lat -e"), references.get("ib_write_bw")
    if transport["transport"] == "rdma" and latency and bandwidth:
        fence, bulk = trip / latency, copies / bandwidth
        numbers.update(fence=fence, bulk=bulk)
        said += f"; {fence:.2f} of ib_send_lat -e (at most {FENCE_MAX}), {bulk:.2f} of ib_write_bw (at least {BULK_MIN})"
        right = fence <= FENCE_MAX and bulk >= BULK_MIN
    report.row(f"{port.name}: gpurun, {transport['session'] or transport['transport']}", right, said, **numbers)


def measure_port(options, report, port, server, words, seconds):
    until = time.monotonic() + seconds
    references = {}
    for name in PERFTESTS:
        if shutil.which(PERFTESTS[name][0][0]) is None:
            report.row(f"{port.name}: {name}", True, "left out, perftest is not installed")
            continue
        value, output = perftest(name, port, server, min(SECONDS, max(1, until - time.monotonic())))
        if value is None and "GPU memory" in name:
            report.row(f"{port.name}: {name}", True, "left out, perftest does not reach GPU memory here (GPUDirect)")
            report.log.write(f"==== {port.name}: {name}\n{output}\n")
            continue
        references[name] = value
        report.row(f"{port.name}: {name}", value is not None,
                   f"{value:.2f} {PERFTESTS[name][3]}" if value is not None else "it failed", output, figure=value)
    if server is None:
        with Server(options, port, 0, ("--insecure-plaintext",)) as own:
            found, output = netperf(options, port, own.address, ["--secret-file", own.secret, "--insecure-plaintext"],
                                    until - time.monotonic())
    else:
        found, output = netperf(options, port, server, words, until - time.monotonic())
    rdma = [one for one in found if one["transport"] == "rdma" and one["available"]]
    if not rdma:
        why = next((one["reason"] for one in found if one["transport"] == "rdma"), "gpuctl netperf failed")
        report.row(f"{port.name}: gpurun, RDMA", False, why, output)
    for one in found:
        if one["available"]:
            compare(report, port, one, references)


def measure(options, report, seconds):
    here = ports()
    if not here:
        return report.fact("RDMA", "no active port with an IPv4 address: nothing to measure")
    words = ["--token-file", options.token_file] if options.token_file else []
    for port in here:
        measure_port(options, report, port, options.server, words, seconds / len(here))
    return None


def serve(options):
    """For the other host: gpurund and perftest's servers at one port, until Ctrl-C."""
    port = next((one for one in ports() if one.address == options.serve), None)
    if port is None:
        return f"gpu-check: no active RDMA port has the address {options.serve}"
    token = os.path.join(options.out, "token")
    tokens = os.path.join(options.out, "tokens")
    with Server(options, port, GPURUND_PORT, ("--tokens", tokens)) as server:
        made = subprocess.run([os.path.join(options.build, "bin/gpuctl"), "token", "create", "gpu-check", "--tokens", tokens,
                               "-o", token], capture_output=True, text=True)
        if made.returncode != 0:
            return f"gpu-check: no token: {made.stderr}"
        print(f"gpurund serves {server.address}. Copy {token} to the other host, and run there:\n"
              f"  run OUTPUT-FOLDER --only network --server {port.address} --token-file token", flush=True)
        running = {}
        try:
            while server.process.poll() is None:
                for name, (words, *_) in PERFTESTS.items():
                    if shutil.which(words[0]) and (name not in running or running[name].poll() is not None):
                        running[name] = subprocess.Popen(perftest_command(name, port), stdin=subprocess.DEVNULL,
                                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(0.5)
        except KeyboardInterrupt:
            return 0
        finally:
            for process in running.values():
                process.send_signal(signal.SIGKILL)
                process.wait()
    return "gpu-check: gpurund has ended"
