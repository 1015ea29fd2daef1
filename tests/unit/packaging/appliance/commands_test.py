#!/usr/bin/env python3
"""Appliance commands: gpurun-appliance on the facts of invented machines, in a folder in place of /.

They protect: settings are checked before anything changes. driver check and rdma check name what is missing. An
update refuses foreign and older packages, and packages while leases run. A token never reaches another place than
the named one. packaging/appliance/cycle boots the real appliance.

usage: commands_test.py APPLIANCE_FOLDER GPURUND_TOML
"""
import os
import pathlib
import pty
import select
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import unittest

APPLIANCE, TOML = map(pathlib.Path, sys.argv[1:3])
COMMAND = APPLIANCE / "root/usr/sbin/gpurun-appliance"
KERNEL = "6.1.0-1-amd64"
KEY = "sha256:" + "ab" * 32
# Programs that change the machine. Each writes its name and words to the file "deeds".
DEEDS = ("systemctl networkctl hostnamectl chpasswd apt-get modprobe update-initramfs dpkg ssh-keygen userdel usermod "
         "cloud-init journalctl").split()


class Machine:
    """An invented machine: a folder in place of /."""

    def __init__(self, folder):
        self.root = folder / "root"
        self.programs = folder / "programs"
        self.programs.mkdir()
        for name in ("etc/gpurun", "etc/systemd/network", "etc/cloud/cloud.cfg.d", "etc/modprobe.d",
                     "sys/bus/pci/devices", f"lib/modules/{KERNEL}", "run", "root", "home", "proc/sys/kernel",
                     "var/lib/gpurun"):
            (self.root / name).mkdir(parents=True)
        shutil.copy(TOML, self.root / "etc/gpurun/gpurund.toml")
        self.write("etc/hosts", "127.0.0.1\tlocalhost\n127.0.1.1\told\n")
        self.write("etc/passwd", "root:x:0:0::/root:/bin/bash\nadmin:x:1000:1000::/home/admin:/bin/bash\n")
        self.write("proc/sys/kernel/osrelease", KERNEL + "\n")
        self.write("proc/modules", "")
        self.write(f"lib/modules/{KERNEL}/modules.dep", "kernel/drivers/infiniband/hw/mlx5/mlx5_ib.ko:\n")
        self.write("sys/class/net/ens3/type", "1\n")
        self.write("sys/class/net/ens3/device/vendor", "0x1af4\n")
        for name in DEEDS:
            self.program(name, f'printf "%s\\n" "{name} $*" >>"{self.root}/deeds"')
        self.program("chpasswd", f'echo "chpasswd $(cat)" >>"{self.root}/deeds"')
        self.program("gpurund", f"echo {KEY}")
        self.health("ok       memlock        locked memory: unlimited")
        self.program("gpuctl", 'case "$1" in list) echo "{\\"leases\\":${LEASES:-0},\\"gpus\\":[]}" ;;\n'
                     f'health) [ "$*" = "health --local" ] && cat "{self.root}/health"; exit 1 ;;\n'
                     '*) for word; do last=$word; done\n'
                     f'echo "gpuctl $*" >>"{self.root}/deeds"\n'
                     'case "$last" in /*) echo gpurun1_secret >"$last" ;; *) echo gpurun1_secret ;; esac ;; esac')
        self.program("ip", "echo '2: ens3 inet 10.0.0.5/24 scope global'")
        self.program("hostname", "echo old")
        self.program("dpkg-query", 'case "$*" in *gpurun-server*) printf 1.0 ;; *) exit 1 ;; esac')

    def health(self, *lines):
        """What gpuctl health prints."""
        self.write("health", "".join(line + "\n" for line in lines))

    def program(self, name, text):
        file = self.programs / name
        file.write_text("#!/bin/sh\n" + text + "\n", "utf-8")
        file.chmod(0o755)

    def write(self, name, text):
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, bytes):
            file.write_bytes(text)
        else:
            file.write_text(text, "utf-8")

    def pci(self, address, vendor, device, kind="0x020000"):
        for name, value in (("vendor", vendor), ("device", device), ("class", kind)):
            self.write(f"sys/bus/pci/devices/{address}/{name}", value + "\n")

    def environment(self, **more):
        return {"PATH": os.environ["PATH"], "GPURUN_APPLIANCE_ROOT": str(self.root),
                "GPURUN_APPLIANCE_PATH": str(self.programs), **more}

    def run(self, *words, text="", **more):
        return subprocess.run([str(COMMAND), *map(str, words)], env=self.environment(**more), input=text,
                              capture_output=True, text=True, check=False, timeout=60)

    def deeds(self):
        file = self.root / "deeds"
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        return [line for line in lines if not line.startswith("systemctl is-active")]

    def text(self, name):
        return (self.root / name).read_text("utf-8")


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.machine = Machine(pathlib.Path(folder.name))

    def has(self, done, status, *texts):
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        for text in texts:
            self.assertIn(text, done.stdout + done.stderr)


class Configure(Case):
    def test_wrong_values_change_nothing(self):
        before = self.machine.text("etc/gpurun/gpurund.toml")
        for words, text in ((["--hostname", "-x"], "no hostname"), (["--hostname", "a b"], "no hostname"),
                            (["--user", "a;b"], "no name of a user"), (["--user", "../x"], "no name of a user"),
                            (["--address", "300.1.1.1/24"], "neither"), (["--address", "10.0.0.1"], "neither"),
                            (["--address", "dhcp", "--gateway", "10.0.0.1"], "need a fixed --address"),
                            (["--gateway", "10.0.0.1"], "need --address"),
                            (["--address", "10.0.0.2/24", "--dns", "10.0.0.1,x"], "\"x\" is no address"),
                            (["--address", "dhcp", "--interface", "ens9"], "no network device \"ens9\""),
                            (["--listen", 'x"\ny'], "no HOST[:PORT]"), (["--driver", "null"], "--driver is"),
                            (["--token-out", "relative"], "absolute path"),
                            (["--token-out", "/etc/hosts"], "exists already"), (["--root-password-stdin"], "no line"),
                            (["--user"], "needs a value"), (["--x", "1"], "no option")):
            with self.subTest(words=words):
                # The right value in front must not be applied either.
                self.has(self.machine.run("configure", "--driver", "emulated", *words), 2, text)
                self.assertEqual(self.machine.deeds(), [])
                self.assertEqual(self.machine.text("etc/gpurun/gpurund.toml"), before)
                self.assertFalse((self.machine.root / "var/lib/gpurun-appliance/configured").exists())

    def test_applies_all_settings(self):
        done = self.machine.run("configure", "--hostname", "gpu1", "--address", "192.168.30.231/24",
                                "--gateway", "192.168.30.1", "--dns", "192.168.30.2,192.168.30.3", "--user", "anna",
                                "--root-password-stdin", text="p: $x\n")
        self.has(done, 0)
        self.assertEqual(done.stdout, "gpurun1_secret\n")
        network = self.machine.text("etc/systemd/network/05-gpurun-ens3.network")
        for line in ("Name=ens3", "Address=192.168.30.231/24", "Gateway=192.168.30.1", "DNS=192.168.30.2",
                     "DNS=192.168.30.3"):
            self.assertIn(line + "\n", network)
        self.assertEqual(self.machine.text("etc/hosts"), "127.0.0.1\tlocalhost\n127.0.1.1\tgpu1\n")
        toml = self.machine.text("etc/gpurun/gpurund.toml")
        self.assertIn('\nlisten = "0.0.0.0:4790"\n', toml)
        self.assertIn('\ndriver = "emulated"\n', toml)
        self.assertEqual(toml.count("\nlisten = "), 1)
        self.assertEqual(self.machine.deeds(), [
            "hostnamectl set-hostname gpu1", "networkctl reload", "networkctl reconfigure ens3", "chpasswd root:p: $x",
            "systemctl enable --quiet gpurund", "systemctl restart gpurund",
            f"gpuctl token create anna --server-fingerprint {KEY}"])
        self.assertTrue((self.machine.root / "var/lib/gpurun-appliance/configured").exists())

    def test_settings_missing_in_the_file_go_above_its_tables(self):
        self.machine.write("etc/gpurun/gpurund.toml", "log = \"info\"\n[every-user]\nlisten = 3\n")
        self.has(self.machine.run("configure"), 0)
        self.assertEqual(self.machine.text("etc/gpurun/gpurund.toml"),
                         'log = "info"\nlisten = "0.0.0.0:4790"\n\ndriver = "emulated"\n\n[every-user]\nlisten = 3\n')

    def test_token_for_the_console_is_in_memory_and_not_printed(self):
        done = self.machine.run("configure", "--user", "anna", "--token-out", "console")
        self.has(done, 0)
        self.assertEqual(done.stdout + done.stderr, "")
        file = self.machine.root / "run/gpurun-appliance/tokens/anna"
        self.assertEqual(file.read_text("ascii"), "gpurun1_secret\n")
        self.assertEqual(stat.S_IMODE(file.parent.stat().st_mode), 0o700)
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)

    def test_gpurund_that_does_not_start_leaves_the_wizard_in_place(self):
        self.machine.program("systemctl", '[ "$1" != restart ]')
        self.has(self.machine.run("configure", "--user", "anna"), 1, "gpurund does not start")
        self.assertFalse((self.machine.root / "var/lib/gpurun-appliance/configured").exists())

    def test_real_driver_needs_gpu_module_and_library(self):
        self.machine.pci("0000:03:00.0", "0x10de", "0x2330", "0x030200")
        self.machine.write("proc/modules", "nvidia 1 0 - Live 0x0\n")
        self.has(self.machine.run("configure"), 0)
        self.assertIn('driver = "emulated"', self.machine.text("etc/gpurun/gpurund.toml"))
        self.machine.write("usr/lib/x86_64-linux-gnu/libcuda.so.1", "")
        self.has(self.machine.run("configure"), 0)
        self.assertIn('driver = "real"', self.machine.text("etc/gpurun/gpurund.toml"))


class Wizard(Case):
    def typed(self, answers, seconds=60):
        """The wizard on a terminal, with an answer for each prompt. Returns what it showed and its status."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(COMMAND, [str(COMMAND), "wizard"], self.machine.environment(TERM="vt220"))
        shown, answers, end = "", list(answers), time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                if not select.select([terminal], [], [], 0.2)[0]:
                    if answers and shown.endswith(": "):
                        question, answer = answers.pop(0)
                        self.assertIn(question, shown.splitlines()[-1])
                        os.write(terminal, answer.encode() + b"\n")
                    continue
                try:
                    shown += os.read(terminal, 65536).decode("utf-8", "replace")
                except OSError:  # It has ended.
                    break
            else:
                self.fail("the wizard did not end:\n" + shown)
        finally:
            os.close(terminal)
        self.assertEqual(answers, [], shown)
        return shown, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    QUESTIONS = [("Address of ens3", "nonsense"), ("Address of ens3", "10.0.0.7/24"), ("Gateway", ""),
                 ("Name servers", ""), ("Hostname", "gpu7"), ("Name of the", "$(reboot)"), ("Name of the", "ben"),
                 ("Root's password", "one"), ("again", "two"), ("Root's password", "hidden-word"),
                 ("again", "hidden-word")]

    def test_asks_again_after_wrong_answers_and_applies(self):
        shown, status = self.typed([*self.QUESTIONS, ("Apply", "yes"), ("Press Enter when", "")])
        self.assertEqual(status, 0, shown)
        self.assertIn("gpurun1_secret", shown)
        self.assertIn(f"fingerprint {KEY}", shown)
        self.assertNotIn("hidden-word", shown)
        self.assertIn("chpasswd root:hidden-word", self.machine.deeds())
        self.assertIn("Address=10.0.0.7/24", self.machine.text("etc/systemd/network/05-gpurun-ens3.network"))
        self.assertFalse((self.machine.root / "run/gpurun-appliance/tokens/ben").exists(), "the token is shown once")
        self.assertTrue((self.machine.root / "etc/cloud/cloud-init.disabled").exists())

    def test_no_at_the_end_changes_nothing(self):
        shown, status = self.typed([*self.QUESTIONS, ("Apply", "no")])
        self.assertEqual(status, 1, shown)
        self.assertEqual(self.machine.deeds(), [])

    def test_needs_a_terminal(self):
        self.has(self.machine.run("wizard"), 1, "needs a terminal")


class Status(Case):
    def test_page(self):
        self.has(self.machine.run("status"), 0, "address      10.0.0.5", "listens on   127.0.0.1:4790",
                 f"fingerprint  {KEY}", "driver       real", "0 x , 0 free", f"version      1.0, kernel {KERNEL}")
        self.machine.program("systemctl", "exit 3")
        self.machine.program("ip", ":")
        self.has(self.machine.run("status"), 0, "address      none yet", "gpurund does not run")


class Driver(Case):
    def gpu(self):
        self.machine.pci("0000:03:00.0", "0x10de", "0x2330", "0x030200")

    def tools(self):
        for name in ("gcc", "make"):
            self.machine.write(f"usr/bin/{name}", "")
            (self.machine.root / f"usr/bin/{name}").chmod(0o755)
        self.machine.write(f"lib/modules/{KERNEL}/build/Makefile", "")

    def test_check_without_a_gpu(self):
        self.machine.pci("0000:04:00.0", "0x10de", "0x10f8", "0x040300")  # The audio part of a card is no GPU.
        self.has(self.machine.run("driver", "check"), 1, "lacks  an NVIDIA GPU: no NVIDIA device is visible",
                 "emulated device", f"lacks  linux-headers-{KERNEL}", "lacks  gcc and make", "lacks  NVIDIA's library")

    def test_check_names_nouveau_and_secure_boot(self):
        self.gpu()
        self.machine.write("proc/modules", "nouveau 1 0 - Live 0x0\n")
        self.machine.write("sys/firmware/efi/efivars/SecureBoot-8be4", b"\x06\0\0\0\1")
        self.has(self.machine.run("driver", "check"), 1, "ok     NVIDIA GPU at 0000:03:00.0", "nouveau holds it",
                 "Secure Boot is on")
        self.machine.write("sys/firmware/efi/efivars/SecureBoot-8be4", b"\x06\0\0\0\0")
        self.has(self.machine.run("driver", "check"), 1, "ok     Secure Boot is off")

    def driver(self, library):
        self.machine.write("proc/modules", "nvidia 1 0 - Live 0x0\n")
        self.machine.write("proc/driver/nvidia/version",
                           "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  date\n")
        self.machine.write(f"usr/lib/x86_64-linux-gnu/libcuda.so.{library}", "")
        os.symlink(f"libcuda.so.{library}", self.machine.root / "usr/lib/x86_64-linux-gnu/libcuda.so.1")

    def test_check_with_a_driver(self):
        self.gpu()
        self.driver("580.95.05")
        self.has(self.machine.run("driver", "check"), 0, "kernel module 580.95.05", "library 580.95.05", "gpurund uses")

    def test_check_names_two_versions(self):
        self.gpu()
        self.driver("535.1.2")
        self.has(self.machine.run("driver", "check"), 1, "the library is 535.1.2, the kernel module is 580.95.05")

    def test_install_refuses_before_it_changes_anything(self):
        run = self.machine.root / "driver.run"
        run.write_text("#!/bin/sh\n", "utf-8")
        self.has(self.machine.run("driver", "install", run), 1, "no NVIDIA device is visible")
        self.gpu()
        self.has(self.machine.run("driver", "install", run), 1, f"needs linux-headers-{KERNEL}")
        self.has(self.machine.run("driver", "install", "/none.run"), 2, "no file or folder /none.run")
        self.has(self.machine.run("driver", "install", TOML), 2, "neither a .run file nor a .deb file")
        self.has(self.machine.run("driver", "install", self.machine.root / "home"), 2, "no .run file and no .deb file")
        self.machine.write("sys/firmware/efi/efivars/SecureBoot-8be4", b"\x06\0\0\0\1")
        self.has(self.machine.run("driver", "install", run), 1, "Secure Boot is on")
        self.assertEqual(self.machine.deeds(), [])

    def test_install_disables_nouveau_and_asks_for_a_restart(self):
        self.gpu()
        self.machine.write("proc/modules", "nouveau 1 0 - Live 0x0\n")
        self.machine.write("driver.run", "#!/bin/sh\n")
        self.has(self.machine.run("driver", "install", self.machine.root / "driver.run"), 1, "restart this machine")
        self.assertIn("blacklist nouveau", self.machine.text("etc/modprobe.d/gpurun-nouveau.conf"))
        self.assertEqual(self.machine.deeds(), ["update-initramfs -u"])

    def test_install_runs_the_file_checks_and_switches_gpurund(self):
        self.gpu()
        self.tools()
        self.machine.write("driver.run", f'#!/bin/sh\necho "run $*" >>"{self.machine.root}/deeds"\n')
        self.has(self.machine.run("driver", "install", self.machine.root / "driver.run"), 1, "is still missing")
        self.assertNotIn("systemctl restart gpurund", self.machine.deeds())
        self.driver("580.95.05")
        self.has(self.machine.run("driver", "install", self.machine.root / "driver.run"), 0, "driver 580.95.05")
        self.assertIn("run --silent --no-opengl-files --no-x-check", self.machine.deeds())
        self.assertEqual(self.machine.deeds()[-3:],
                         ["modprobe nvidia", "modprobe nvidia_uvm", "systemctl restart gpurund"])
        self.assertIn('driver = "real"', self.machine.text("etc/gpurun/gpurund.toml"))

    def test_install_takes_the_packages_of_a_folder(self):
        self.gpu()
        self.driver("580.95.05")
        self.machine.write("debs/b.deb", "")
        self.machine.write("debs/a.deb", "")
        self.has(self.machine.run("driver", "install", self.machine.root / "debs"), 0)
        folder = (self.machine.root / "debs").resolve()
        self.assertIn(f"apt-get install -q -y --no-install-recommends {folder}/a.deb {folder}/b.deb",
                      self.machine.deeds())


class Rdma(Case):
    def modules(self, *in_order_of_start):
        self.machine.write("proc/modules", "".join(f"{name} 1 0 - Live 0x0\n" for name in reversed(in_order_of_start)))

    def test_no_hardware(self):
        self.has(self.machine.run("rdma", "check"), 0, "no RDMA hardware is visible")

    def test_pvrdma_before_vmxnet3_is_wrong(self):
        self.machine.pci("0000:0b:00.0", "0x15ad", "0x07b0")
        self.machine.pci("0000:0b:00.1", "0x15ad", "0x0820")
        self.modules("ib_uverbs", "vmw_pvrdma", "vmxnet3", "rdma_ucm")
        late = "warning  pvrdma-module  vmw_pvrdma started before vmxnet3"
        self.machine.health("ok       memlock        unlimited", late, "         fix: modprobe -r vmw_pvrdma", "1 ok")
        done = self.machine.run("rdma", "check")
        self.has(done, 1, late, "fix: modprobe -r vmw_pvrdma")
        self.assertNotIn("memlock", done.stdout)
        self.modules("ib_uverbs", "vmxnet3", "vmw_pvrdma", "rdma_ucm")
        self.machine.health("ok       pvrdma-module  vmxnet3 and ib_uverbs started before vmw_pvrdma")
        self.has(self.machine.run("rdma", "check"), 0, "ok     vmw_pvrdma drives 0000:0b:00.1",
                 "vmxnet3 and ib_uverbs started before vmw_pvrdma")

    def test_mellanox_before_its_modules_is_wrong(self):
        self.machine.pci("0000:0c:00.0", "0x15b3", "0x101b")
        self.modules("mlx5_core", "mlx5_ib", "ib_uverbs", "rdma_ucm")
        self.has(self.machine.run("rdma", "check"), 1, "wrong  mlx5_ib started before ib_uverbs")
        self.modules("mlx5_ib", "rdma_ucm")
        self.has(self.machine.run("rdma", "check"), 1, "ib_uverbs, which it needs, is not")
        self.modules("ib_uverbs", "mlx5_core", "mlx5_ib", "rdma_ucm")
        self.has(self.machine.run("rdma", "check"), 0, "ok     mlx5_core started before mlx5_ib")

    def test_hardware_without_a_driver(self):
        self.machine.pci("0000:0b:00.1", "0x15ad", "0x0820")
        self.machine.pci("0000:0c:00.0", "0x15b3", "0x101b")
        self.has(self.machine.run("rdma", "check"), 1, f"wrong  kernel {KERNEL} has no vmw_pvrdma",
                 "wrong  mlx5_ib is not loaded, for the device at 0000:0c:00.0", "rdma_ucm is not loaded")

    def test_states_of_ports_and_messages_of_the_kernel(self):
        self.modules("ib_uverbs", "rdma_rxe", "rdma_ucm")
        self.machine.write("sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE\n")
        active = "ok       verbs-port     rxe0:1 ACTIVE, Ethernet"
        self.machine.health(active, "warning  mtu            MTU 1500", "         fix: ip link set ens3 mtu 9000")
        self.has(self.machine.run("rdma", "check"), 0, active, "fix: ip link")  # It is only slower.
        self.machine.health("failed   verbs-port     rxe0:1 DOWN, Ethernet")
        self.has(self.machine.run("rdma", "check"), 1, "rxe0:1 DOWN")
        self.machine.health()
        self.has(self.machine.run("rdma", "check"), 1, "gpuctl health printed no check")
        self.machine.health(active)
        self.modules("ib_uverbs", "rdma_rxe")
        self.has(self.machine.run("rdma", "check"), 0, "note   rdma_ucm is not loaded")
        self.modules("ib_uverbs", "rdma_rxe", "rdma_ucm")
        self.machine.write("dmesg", "[1.0] vmw_pvrdma: module verification failed: signature and/or required key "
                           "missing - tainting kernel\n")
        self.has(self.machine.run("rdma", "check"), 0, active)
        self.machine.write("dmesg", "[1.0] vmw_pvrdma 0000:0b:00.1: failed to find netdev\n")
        self.has(self.machine.run("rdma", "check"), 1, "failed to find netdev", "the kernel logged")

    def test_rxe_refuses_wrong_names(self):
        self.has(self.machine.run("rdma", "rxe", "on", "ens9"), 2, "no network device \"ens9\"")
        for name in ("../x", "a-b", ""):
            self.has(self.machine.run("rdma", "rxe", "on", name), 2, "no name of a network device")
        self.assertEqual(self.machine.deeds(), [])
        self.has(self.machine.run("rdma", "rxe", "on", "ens3"), 0)
        self.assertEqual(self.machine.deeds(), ["systemctl enable --quiet --now gpurun-rxe@ens3"])


class Care(Case):
    def deb(self, package, version):
        tree = self.machine.root / f"tree-{package}-{version}"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(f"Package: {package}\nVersion: {version}\nArchitecture: all\n"
                                             "Maintainer: x\nDescription: x\n", "utf-8")
        file = self.machine.root / f"{package}_{version}.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, file], check=True, capture_output=True)
        return file

    def setUp(self):
        super().setUp()
        self.machine.program("dpkg", 'if [ "$1" = --compare-versions ]; then exec /usr/bin/dpkg "$@"; fi\n'
                             f'echo "dpkg $*" >>"{self.machine.root}/deeds"')

    def test_update_refuses_what_it_should_not_install(self):
        self.has(self.machine.run("update"), 2, "needs .deb files")
        self.has(self.machine.run("update", "/none.deb"), 2, "no file or folder /none.deb")
        self.has(self.machine.run("update", TOML), 1, "no Debian package")
        self.has(self.machine.run("update", self.machine.root / "home"), 1, "no package gpurun-*.deb")
        self.has(self.machine.run("update", self.deb("bash", "9")), 1, "is the package bash")
        self.has(self.machine.run("update", self.deb("gpurun-server", "0.9")), 1, "has version 0.9, and 1.0")
        self.has(self.machine.run("update", self.deb("gpurun-server", "1.1"), LEASES="2"), 1, "2 leases are in use")
        self.assertEqual(self.machine.deeds(), [])

    def test_update_installs_and_keeps_settings(self):
        deb = self.deb("gpurun-server", "1.1")
        self.machine.write("var/lib/gpurun-appliance/configured", "")
        self.has(self.machine.run("update", "--now", deb, LEASES="2"), 0, "updated to")
        self.assertEqual(self.machine.deeds(), [
            "apt-get install -q -y --no-install-recommends -o Dpkg::Options::=--force-confdef "
            f"-o Dpkg::Options::=--force-confold {deb.resolve()}", "systemctl daemon-reload",
            "systemctl enable --quiet gpurund", "systemctl restart gpurund"])

    def test_update_reports_a_changed_key(self):
        self.machine.program("gpurund", f'[ -e "{self.machine.root}/asked" ] && echo sha256:00 || echo sha256:11\n'
                             f': >"{self.machine.root}/asked"')
        self.has(self.machine.run("update", self.deb("gpurun-server", "1.1")), 1,
                 "the key has changed from sha256:11 to sha256:00")

    def test_ssh_needs_keys(self):
        self.has(self.machine.run("ssh", "on"), 1, "nobody could log in")
        self.machine.write("root/.ssh/authorized_keys", "# none\n")
        self.has(self.machine.run("ssh", "on"), 1, "nobody could log in")
        self.assertEqual(self.machine.deeds(), [])
        self.machine.write("home/admin/.ssh/authorized_keys", "ssh-ed25519 AAAA x\n")
        self.has(self.machine.run("ssh", "on"), 0)
        self.assertIn("systemctl enable --quiet --now ssh", self.machine.deeds())

    def test_reset_forgets(self):
        self.has(self.machine.run("reset"), 2, "needs --yes")
        self.assertEqual(self.machine.deeds(), [])
        kept = ["etc/systemd/network/80-gpurun-dhcp.network", "etc/gpurun/gpurund.toml"]
        gone = ["var/lib/gpurun/server-key.pem", "var/lib/gpurun/tokens", "var/cache/gpurun/images",
                "etc/ssh/ssh_host_ed25519_key", "etc/systemd/network/05-gpurun-ens3.network",
                "etc/systemd/network/10-cloud-init-ens3.network", "etc/gpurun/key.pem",
                "etc/cloud/cloud-init.disabled", "var/lib/gpurun-appliance/configured", "root/.ssh/authorized_keys",
                "run/gpurun-appliance/tokens/anna"]
        for name in [*gone, kept[0]]:
            self.machine.write(name, "x")
        self.has(self.machine.run("reset", "--yes"), 0, "Restart it")
        self.assertEqual([name for name in gone if (self.machine.root / name).exists()], [])
        self.assertEqual([name for name in kept if not (self.machine.root / name).exists()], [])
        for deed in ("usermod --password * root", "hostnamectl set-hostname gpurun", "userdel --remove admin",
                     "cloud-init clean --logs", "systemctl disable --quiet --now gpurund"):
            self.assertIn(deed, self.machine.deeds())
        self.assertEqual(self.machine.text("etc/machine-id"), "")


class Usage(Case):
    def test_wrong_usage_ends_with_2(self):
        for words in ([], ["nope"], ["driver"], ["rdma", "x"], ["ssh", "x"], ["status", "x"], ["token"],
                      ["token", "a/b"]):
            with self.subTest(words=words):
                self.has(self.machine.run(*words), 2, "gpurun-appliance: ", "--help")
                self.assertEqual(self.machine.deeds(), [])

    def test_help(self):
        for words, text in ((["--help"], "usage: gpurun-appliance"), (["driver", "--help"], "usage: gpurun-appliance"),
                            (["configure", "--help"], "--token-out")):
            self.has(self.machine.run(*words), 0, text)

    def test_builders_name_wrong_options(self):
        for name in ("build", "pvrdma", "cycle"):
            with self.subTest(name=name):
                wrong = subprocess.run([APPLIANCE / name, "--no-such"], capture_output=True, text=True, check=False,
                                       timeout=60)
                self.assertEqual(wrong.returncode, 2)
                self.assertIn("--no-such", wrong.stderr)
                right = subprocess.run([APPLIANCE / name, "--help"], capture_output=True, text=True, check=False,
                                       timeout=60)
                self.assertEqual((right.returncode, right.stderr), (0, ""))
                self.assertIn(f"packaging/appliance/{name} [--", right.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
