#!/usr/bin/env python3
"""NVML of the run, for monitors and for scripts that choose the emptiest GPU. In a process without
a context, NVML shows the memory of the run's other processes on each device, and these processes,
until they free it or end. The other process is this script with the word "hold". It does one step
for each line that it reads.
"""
import ctypes
import subprocess
import sys

MIB = 1 << 20
DEVICE = 1


class Cuda:
    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def call(*arguments):
            result = function(*arguments)
            if result:
                sys.exit(f"{name} answers {result}")
        return call


def in_64_bits(value):
    return ctypes.c_uint64(value)


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class AllocationProperties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location),
                ("metadata", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


def hold():
    """Yields after each step. NVML should show the yielded number, in MiB."""
    cuda = Cuda()
    context, address, pooled = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
    array, memory = ctypes.c_void_p(), ctypes.c_uint64()
    cuda.cuInit(0)
    yield 0
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), DEVICE)
    cuda.cuCtxSetCurrent(context)
    yield 0
    cuda.cuMemAlloc_v2(ctypes.byref(address), in_64_bits(256 * MIB))
    yield 256
    cuda.cuMemAllocAsync(ctypes.byref(pooled), in_64_bits(64 * MIB), None)
    yield 320
    described = (ctypes.c_uint64 * 4)(4096, 4096, 0x20 | 1 << 32)  # Floats, one channel: 64 MiB.
    cuda.cuArrayCreate_v2(ctypes.byref(array), described)
    yield 384
    properties = AllocationProperties(type=1, location=Location(1, DEVICE))
    cuda.cuMemCreate(ctypes.byref(memory), in_64_bits(32 * MIB), ctypes.byref(properties), in_64_bits(0))
    yield 416
    cuda.cuMemFree_v2(address)
    yield 160
    cuda.cuMemRelease(memory)
    cuda.cuArrayDestroy(array)
    yield 64
    cuda.cuDevicePrimaryCtxRelease_v2(DEVICE)
    yield 0


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instance", ctypes.c_uint),
                ("compute", ctypes.c_uint)]


class Monitor:
    def __init__(self):
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if self.nvml.nvmlInit_v2():
            sys.exit("no NVML")

    def ask(self, index):
        """Returns (MiB in use, {process: MiB})."""
        device, count = ctypes.c_void_p(), ctypes.c_uint(16)
        memory, found = (ctypes.c_ulonglong * 3)(), (Process * 16)()
        for result in (self.nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)),
                       self.nvml.nvmlDeviceGetMemoryInfo(device, memory),
                       self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), found)):
            if result:
                sys.exit(f"NVML answers {result}")
        return memory[2] // MIB, {found[i].pid: found[i].used // MIB for i in range(count.value)}


def main():
    monitor = Monitor()
    expect = []
    holder = subprocess.Popen([sys.executable, "-B", __file__, "hold"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    step = 0
    while True:
        holder.stdin.write("on\n")
        holder.stdin.flush()
        line = holder.stdout.readline()
        if line == "end\n":
            break
        mib = int(line)
        # The process has a context from the second step to the last but one.
        processes = {holder.pid: mib} if step not in (0, 8) else {}
        if monitor.ask(DEVICE) != (mib, processes):
            expect.append(f"step {step}: {monitor.ask(DEVICE)}, not {(mib, processes)}")
        if monitor.ask(0) != (0, {}):
            expect.append(f"step {step}: device 0 shows {monitor.ask(0)}")
        step += 1
    holder.stdin.close()
    holder.wait()
    # Starts a process that holds memory, and kills it.
    holder = subprocess.Popen([sys.executable, "-B", __file__, "hold"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    for mib in (0, 0, 256):
        holder.stdin.write("on\n")
        holder.stdin.flush()
        holder.stdout.readline()
    if monitor.ask(DEVICE) != (256, {holder.pid: 256}):
        expect.append(f"the second: {monitor.ask(DEVICE)}")
    holder.kill()
    holder.wait()
    if monitor.ask(DEVICE) != (0, {}):
        expect.append(f"a dead process is shown: {monitor.ask(DEVICE)}")
    print("\n".join(expect) if expect or step != 9 else "PASSED")
    return int(bool(expect))


if __name__ == "__main__":
    if sys.argv[1:] == ["hold"]:
        steps = hold()
        for _ in sys.stdin:
            print(next(steps, "end"), flush=True)
        sys.exit(0)
    sys.exit(main())
