#!/usr/bin/env python3
"""Protects: the GPU really is elsewhere. The program runs in mount and network namespaces in which
the emulated driver, LLVM, gpurund and gpurun-worker do not exist; its only way out is one relay to
the server's port, and it still computes right results."""
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

import world


def pump(source, sink):
    while True:
        try:
            data = source.recv(1 << 16)
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            sink.sendall(data)
        except OSError:
            return


def relay(listener, connect):
    """Connects whoever comes to `listener` with what `connect` returns."""
    def serve():
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = connect()
            threading.Thread(target=pump, args=(near, far), daemon=True).start()
            threading.Thread(target=pump, args=(far, near), daemon=True).start()
    threading.Thread(target=serve, daemon=True).start()


def inside(build, folder, command):
    """The client's side, in namespaces of its own: hides the server's parts, opens the relay, runs."""
    hidden = [os.path.join(build, "lib/gpurun/emulated"), os.path.join(build, "tests/devices"),
              os.path.join(build, "bin/gpurund"), os.path.join(build, "bin/gpurun-worker")]
    for root, folders, files in os.walk("/usr/lib"):
        hidden += [os.path.join(root, f) for f in folders if f.startswith("llvm-")]
        hidden += [os.path.join(root, f) for f in files if f.startswith("libLLVM") and not os.path.islink(os.path.join(root, f))]
        folders[:] = [f for f in folders if not f.startswith("llvm-")]
    empty = os.path.join(folder, "empty")
    os.makedirs(empty)
    nothing = os.path.join(folder, "nothing")
    open(nothing, "w").close()
    for path in hidden:
        if os.path.exists(path):
            subprocess.run(["mount", "--bind", empty if os.path.isdir(path) else nothing, path],
                           check=True)
    for path in hidden[:2]:
        if os.path.isdir(path) and os.listdir(path):
            sys.exit(f"WRONG: {path} is still there")
    for path in hidden[2:4]:
        if os.path.getsize(path) != 0:
            sys.exit(f"WRONG: {path} is still there")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    door = os.path.join(folder, "door")

    def connect():
        far = socket.socket(socket.AF_UNIX)
        far.connect(door)
        return far

    listener = socket.create_server(("127.0.0.1", 0))
    relay(listener, connect)
    address = "127.0.0.1:%d" % listener.getsockname()[1]
    return subprocess.run([os.path.join(build, "bin/gpurun"), "-l", address, "--", *command],
                          stdin=subprocess.DEVNULL).returncode


def main():
    build, expected, *command = sys.argv[1:]
    if command[0] == "--inside":
        return inside(build, command[1], command[2:])
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rmn", "true"]).returncode != 0:
        print("skipped: this machine gives no namespaces")
        return 77
    with tempfile.TemporaryDirectory() as folder, world.Server(build, folder) as server:
        door = socket.socket(socket.AF_UNIX)
        door.bind(os.path.join(folder, "door"))
        door.listen()
        relay(door, lambda: socket.create_connection(("127.0.0.1", server.port())))
        options = ["-mn"] if os.geteuid() == 0 else ["-rmn"]
        done = subprocess.run(
            ["unshare", *options, "--", sys.executable, __file__, build, expected, "--inside", folder,
             *command],
            env=world.gpurun_environment(server), capture_output=True, text=True, timeout=240)
        print(done.stdout, done.stderr)
        if done.returncode != 0 or expected not in done.stdout:
            print(f"WRONG: exit status {done.returncode}, {expected!r} expected")
            print(server.log())
            return 1
    return 0


sys.exit(main())
