#!/usr/bin/env python3
"""hashcat's cases: it finds known words on the GPU. Its kernels come from NVRTC at run time."""
import hashlib
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, main  # noqa: E402

LIMIT_S = 600


def find(kind, digest, *attack):
    """Runs hashcat in a folder of its own. Returns the word that it found."""
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, HOME=folder, XDG_DATA_HOME=folder, XDG_CACHE_HOME=folder)
        done = subprocess.run(
            ["hashcat", "--force", "--quiet", "--potfile-disable", "--backend-ignore-opencl", "-d", "1", "-u", "1",
             "-n", "1", "--self-test-disable", "-m", str(kind), digest, *attack],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
        found = [line for line in done.stdout.splitlines() if line.lower().startswith(digest.lower())]
        if not found:
            raise AssertionError(f"exit status {done.returncode}: {(done.stdout + done.stderr)[-300:]}")
        return found[-1].rpartition(":")[2]


def finds(kind, digest, word, *attack):
    said = find(kind, digest, *attack)
    assert said == word, said


@case
def md5_by_mask():
    finds(0, hashlib.md5(b"gpu").hexdigest(), "gpu", "-a", "3", "?l?l?l")


@case
def sha256_by_mask():
    finds(1400, hashlib.sha256(b"a7x").hexdigest(), "a7x", "-a", "3", "?l?d?l")


@case
def sha512_by_words():
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as words:
        words.write("".join(f"word{number}\n" for number in range(500)))
        words.flush()
        finds(1700, hashlib.sha512(b"word321").hexdigest(), "word321", "-a", "0", words.name)


if __name__ == "__main__":
    main()
