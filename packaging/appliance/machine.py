"""machine: a QEMU machine without KVM, with a serial console that a test reads and types on."""
import contextlib
import os
import pathlib
import re
import select
import socket
import subprocess
import time

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1b[=>78cM]|\x1b\][^\x07]*\x07|\r")
FIRMWARE = pathlib.Path("/usr/share/OVMF")


class Failed(Exception):
    """A deadline passed, or something was wrong. Its text is for the user."""


def run(*command, **options):
    made = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    if made.returncode:
        raise Failed(f"{command[0]} failed with status {made.returncode}:\n{made.stdout}{made.stderr}")
    return made.stdout


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Machine:
    """One virtual machine. Its disk is a layer over `image`, so the image stays as it is."""

    def __init__(self, folder, name, image, disk_gib, processors, disks=(), network="virtio-net-pci",
                 secure_boot=False):
        self.log = folder / f"{name}.console"
        self.port, self.ssh_port = free_port(), free_port()
        self.text = ""
        self.said = ""
        self.started = time.monotonic()
        disk = folder / f"{name}.qcow2"
        run("qemu-img", "create", "-q", "-f", "qcow2", "-b", pathlib.Path(image).resolve(), "-F", "qcow2", disk,
            f"{disk_gib}G")
        path = folder / f"{name}.serial"
        command = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none",
                   "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", processors, "-m", 2048, "-rtc", "base=utc",
                   "-drive", f"file={disk},if=virtio,format=qcow2,cache=unsafe",
                   "-netdev", f"user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:4790,"
                   f"hostfwd=tcp:127.0.0.1:{self.ssh_port}-:22",
                   "-device", f"{network},netdev=n,romfile=", "-device", "virtio-rng-pci",
                   "-chardev", f"socket,id=serial,path={path},server=on,wait=off", "-serial", "chardev:serial",
                   "-vga", "std"]
        if secure_boot:
            variables = folder / f"{name}.variables"
            variables.write_bytes((FIRMWARE / "OVMF_VARS_4M.ms.fd").read_bytes())
            command += ["-machine", "q35,smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on",
                        "-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={FIRMWARE}/OVMF_CODE_4M.secboot.fd",
                        "-drive", f"if=pflash,format=raw,unit=1,file={variables}"]
        else:
            command += ["-machine", "q35"]
        for file in disks:
            command += ["-drive", f"file={file},if=virtio,format=raw,readonly=on"]
        self.errors = open(folder / f"{name}.qemu", "w+", encoding="utf-8")  # closed in stop()
        self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=self.errors,
                                        stderr=self.errors)
        self.console = socket.socket(socket.AF_UNIX)
        try:
            self.open_console(path)
        except BaseException:
            self.stop()  # The caller has no machine to stop.
            raise

    def open_console(self, path):
        while True:
            with contextlib.suppress(OSError):
                self.console.connect(str(path))
                return
            self.alive()
            if self.seconds() > 120:
                raise Failed("QEMU opened no serial console in 120 s")
            time.sleep(0.05)

    def seconds(self):
        return time.monotonic() - self.started

    def alive(self):
        if self.process.poll() is not None:
            self.errors.seek(0)
            raise Failed(f"QEMU ended with status {self.process.returncode}: {self.errors.read()}")

    def read(self, seconds):
        """Takes what the console shows within some seconds, and forgets its escape sequences."""
        if not select.select([self.console], [], [], seconds)[0]:
            return
        data = self.console.recv(65536)
        if not data:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
            self.alive()
            raise Failed("QEMU closed the serial console")
        self.said += data.decode("utf-8", "replace")
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(data.decode("utf-8", "replace"))
        self.text = ESCAPES.sub("", self.said)

    def expect(self, pattern, seconds, what):
        """Waits for a pattern in what the console has shown since the last match. Returns the match."""
        end = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.text, re.M)
            if found:
                self.text = self.said = self.text[found.end():]
                return found
            self.alive()
            if time.monotonic() > end:
                raise Failed(f"{what}: not on the console in {seconds} s. Its last lines:\n" + "\n".join(
                    self.text.splitlines()[-25:]))
            self.read(0.5)

    def shows_nothing_like(self, pattern, seconds, what):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(0.5)
            if re.search(pattern, self.text, re.M):
                raise Failed(f"{what}:\n{self.text[-2000:]}")

    def type(self, text):
        self.console.sendall(text.encode())

    def answer(self, question, text, seconds=60):
        """Waits for the wizard's question, and answers it."""
        self.expect(question, seconds, f"the question \"{question}\"")
        self.type(text + "\n")

    def command(self, line, seconds=120, status=0):
        """Runs a line in the shell on the console, which has shown its prompt. Returns what it printed."""
        # The terminal echoes the line. The marker is split there, so only the shell's own one matches.
        self.type(f"{line}; echo \"EN\"\"D=$?.\"\n")
        self.expect(r"D=\$\?\.\"\n", 30, f"the echo of \"{line}\"")
        end = time.monotonic() + seconds
        while not re.search(r"END=\d+\.", self.text):
            self.alive()
            if time.monotonic() > end:
                raise Failed(f"\"{line}\" did not end in {seconds} s:\n{self.text[-2000:]}")
            self.read(0.5)
        found = re.search(r"END=(\d+)\.", self.text)
        output = self.text[:found.start()]
        self.text = self.said = self.text[found.end():]
        # What is typed before the prompt is echoed twice: by the terminal, and by the shell at its prompt.
        self.expect(r"^root@[^\n]*# ", 60, f"the prompt after \"{line}\"")
        if status is not None and int(found[1]) != status:
            raise Failed(f"\"{line}\" ended with status {found[1]}, not {status}:\n{output}")
        return output

    def stop(self):
        """Ends the machine at once, as a power cut would."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.console.close()
        self.errors.close()


def disk_of_files(folder, name, label, files):
    """A read-only disk with some files, and a label."""
    source = folder / f"{name}.files"
    source.mkdir()
    for file, data in files.items():
        if isinstance(data, pathlib.Path):
            os.link(data, source / file)
        else:
            (source / file).write_text(data, "utf-8")
    image = folder / f"{name}.iso"
    run("xorriso", "-as", "mkisofs", "-quiet", "-V", label, "-r", "-J", "-joliet-long", "-o", image, source)
    return image
