#!/usr/bin/env python3
"""ffmpeg's cases: frames that go through the GPU's memory are those of the CPU, byte for byte."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, main  # noqa: E402


def frames(*filters, before=()):
    """The hash of each frame of a test picture behind these filters."""
    done = subprocess.run(
        ["ffmpeg", "-v", "error", *before, "-f", "lavfi", "-i", "testsrc2=size=320x240:rate=10:duration=1",
         "-vf", ",".join(filters), "-f", "framemd5", "-"],
        capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(done.stderr.strip()[-300:])
    hashes = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert len(hashes) == 10, done.stdout
    return hashes


def same(form, *on_gpu):
    gpu = frames("format=" + form, "hwupload", *on_gpu, "hwdownload", "format=" + form,
                 before=("-init_hw_device", "cuda=gpu:0", "-filter_hw_device", "gpu"))
    cpu = frames("format=" + form)
    assert gpu == cpu, (gpu[:2], cpu[:2])


@case
def frames_there_and_back():
    same("yuv420p")


@case
def other_pixel_format():
    same("nv12")


@case
def frames_of_ten_bits():
    same("p010le")


@case
def upload_by_its_own_filter():
    gpu = frames("format=yuv420p", "hwupload_cuda", "hwdownload", "format=yuv420p")
    assert gpu == frames("format=yuv420p")


if __name__ == "__main__":
    main()
