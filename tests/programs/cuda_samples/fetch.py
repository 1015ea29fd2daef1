#!/usr/bin/env python3
"""Fetches and builds NVIDIA's CUDA samples from Debian's package nvidia-cuda-samples (contrib).

The package comes through private lists, and the machine's sources are neither read nor changed.
Nothing of it is committed. Samples that are built already are kept. Exit status 77: no network
(reported).

usage: fetch.py NVCC FOLDER SAMPLES_JSON
"""
import concurrent.futures
import glob
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import fetching  # noqa: E402
from sample_tree import EXAMPLES  # noqa: E402

SOURCES = """Types: deb
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


def fetch(folder, package):
    if os.path.isdir(os.path.join(folder, EXAMPLES)):
        return
    for name in ("parts", "lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    with open(os.path.join(folder, "parts/contrib.sources"), "w", encoding="utf-8") as file:
        file.write(SOURCES)
    apt = ["apt-get", *fetching.APT, "-oDir::Etc::SourceList=/dev/null",
           f"-oDir::Etc::SourceParts={folder}/parts", f"-oDir::State::Lists={folder}/lists",
           f"-oDir::Cache={folder}/cache", "-oAPT::Sandbox::User=root"]
    # Without network the first succeeds, too, and finds nothing.
    fetching.fetch(f"{package} (Debian's contrib)", [*apt, "update"], [*apt, "download", package],
                   cwd=folder)
    deb = glob.glob(os.path.join(folder, package + "_*.deb"))[0]
    subprocess.run(["dpkg", "-x", deb, os.path.join(folder, "root")], check=True)
    os.remove(deb)


def build(nvcc, folder, sample):
    examples = os.path.join(folder, EXAMPLES)
    source = os.path.join(examples, "Samples", sample["name"])
    target = os.path.join(folder, "bin", os.path.basename(sample["name"]))
    if os.path.exists(target):
        return None
    files = sorted(glob.glob(source + "/*.cu") + glob.glob(source + "/*.cpp"))
    command = [nvcc, "-std=c++17", "-w", "-I" + os.path.join(examples, "Common"), "-cudart", "static",
               "-o", target, *files]
    done = subprocess.run(command, capture_output=True, text=True)
    return None if done.returncode == 0 else f"{sample['name']}: {(done.stdout + done.stderr)[-800:]}"


def main(nvcc, folder, samples_path):
    with open(samples_path, encoding="utf-8") as file:
        samples = json.load(file)
    folder = os.path.abspath(folder)
    os.makedirs(os.path.join(folder, "bin"), exist_ok=True)
    fetch(folder, samples["package"])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = [e for e in pool.map(lambda s: build(nvcc, folder, s), samples["samples"]) if e]
    for error in errors:
        print("not built:", error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
