#!/usr/bin/env python3
"""Stopped server: calls that CUDA lets return at once do not need the server. With daemon and
worker stopped, thousands of them still return. Once these continue, the results are right."""
import os
import signal
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

DEADLINE_S = 60


def expect_line(process, wanted, wrong):
    line = process.stdout.readline().strip()
    if line != wanted:
        wrong.append(f"expected {wanted!r}, got {line!r}")
    return line == wanted


def main():
    program, *arguments = sys.argv[1:]
    wrong = []
    with world.Gpurund() as server, world.Statistics() as statistics:
        process = subprocess.Popen(
            [world.GPURUN, "-q", *server.transport.words, "-l", server.address, "--", program, *arguments],
            text=True, env=world.client_environment(server, **statistics.variables),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        stopped = []
        watchdog = None
        try:
            watchdog = threading.Timer(DEADLINE_S, process.kill)
            watchdog.start()
            if expect_line(process, "ready", wrong):
                stopped = [server.process.pid, *server.workers()]
                if len(stopped) < 2:
                    wrong.append("there is no worker to stop")
                for pid in stopped:
                    os.kill(pid, signal.SIGSTOP)
                process.stdin.write("go\n")
                process.stdin.flush()
                if not expect_line(process, "all returned", wrong):
                    wrong.append("a call waited for the stopped server")
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        if not wrong:
            process.stdin.write("finish\n")
            process.stdin.flush()
            expect_line(process, "PASSED", wrong)
        process.stdin.close()
        process.wait(DEADLINE_S)
        watchdog.cancel()
        if process.returncode != 0:
            wrong.append(f"exit status {process.returncode}")
        if not wrong:
            statistics.check(server)
        if wrong:
            print(server.log())
    for line in wrong:
        print("WRONG:", line)
    return 1 if wrong else 0


sys.exit(main())
