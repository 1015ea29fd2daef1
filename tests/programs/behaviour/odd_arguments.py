#!/usr/bin/env python3
"""Odd arguments: a call must not succeed and then fail later, at an unrelated call. The test calls
the posted rows of the table (completion async) with arguments that it draws from existing objects,
objects of another kind and numbers, also bad ones. After a call that succeeds, no later wait
returns an error. Its words: an image with the kernel `fill`, and the number of calls of each row.
GPURUN_TEST_SEED sets the random seed.
"""
import ctypes
import os
import random
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "driver_abi/apigen"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cuda_types  # noqa: E402  (the path must be set first)
import table  # noqa: E402
from async_rows import names  # noqa: E402

NUMBERS = (0, 1, 2, 3, 4, 5, 8, 16, 64, 1 << 20, (1 << 32) - 1)
COUNTS = (0, 1, 2, 2, 3)
DEVICE_BYTES = 1 << 16
# Structures that a row may take although the table does not describe them.
STRUCTURES = ("CUDA_KERNEL_NODE_PARAMS", "CUDA_HOST_NODE_PARAMS", "CUDA_MEMCPY3D")
# A wait for a value that never comes blocks forever.
STANDS = ("cuStreamWaitValue", "cuStreamBatchMemOp")


class KernelNode(ctypes.Structure):
    _fields_ = [("function", ctypes.c_void_p), ("shape", ctypes.c_uint * 7), ("parameters", ctypes.c_void_p),
                ("extra", ctypes.c_void_p), ("kernel", ctypes.c_void_p), ("context", ctypes.c_void_p)]


class Fill(ctypes.Structure):
    _fields_ = [("to", ctypes.c_void_p), ("pitch", ctypes.c_size_t), ("value", ctypes.c_uint),
                ("element", ctypes.c_uint), ("width", ctypes.c_size_t), ("height", ctypes.c_size_t)]


class HostNode(ctypes.Structure):
    _fields_ = [("function", ctypes.c_void_p), ("user", ctypes.c_void_p)]


class Side(ctypes.Structure):
    _fields_ = [("x", ctypes.c_size_t), ("y", ctypes.c_size_t), ("z", ctypes.c_size_t), ("level", ctypes.c_size_t),
                ("type", ctypes.c_uint), ("host", ctypes.c_void_p), ("device", ctypes.c_void_p),
                ("array", ctypes.c_void_p), ("reserved", ctypes.c_void_p), ("pitch", ctypes.c_size_t),
                ("height", ctypes.c_size_t)]


class Copy(ctypes.Structure):
    _fields_ = [("source", Side), ("to", Side), ("width", ctypes.c_size_t), ("height", ctypes.c_size_t),
                ("depth", ctypes.c_size_t)]


NOTHING = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda user: None)
ON_HOST, ON_DEVICE = 1, 2


class World:
    """Objects of each kind, and memory."""

    def __init__(self, cuda, image):
        self.cuda = cuda
        self.kept = []
        self.context = self.make("cuDevicePrimaryCtxRetain", 0)
        self.must("cuCtxSetCurrent", self.context)
        self.memory = self.make("cuMemAlloc_v2", ctypes.c_size_t(DEVICE_BYTES))
        self.pinned = self.make("cuMemHostAlloc", ctypes.c_size_t(DEVICE_BYTES), 0)
        self.make_structures(self.make("cuModuleLoad", image))
        event = self.make("cuEventCreate", 0)
        self.must("cuEventRecord", event, None)
        graphs = [self.make("cuGraphCreate", 0) for _ in range(2)]
        nodes = [node for graph in graphs for node in self.make_nodes(graph, event)]
        executable = self.make("cuGraphInstantiateWithFlags", graphs[0], ctypes.c_uint64(0))
        self.objects = {
            "kContext": [self.context], "kEvent": [event], "kGraph": graphs, "kGraphNode": nodes,
            "kStream": [0, 1, 2, *[self.make("cuStreamCreate", flags) for flags in (0, 1)]],
            "kGraphExec": [executable], "kFunction": [self.function],
            "kMemoryPool": [self.make("cuDeviceGetDefaultMemPool", 0)],
        }

    def make_structures(self, module):
        """Structures that rows take by a pointer, for nodes of each kind."""
        self.function = self.make("cuModuleGetFunction", module, b"fill")
        words = (ctypes.c_uint64 * 3)(self.memory.value, 4, 7)
        values = (ctypes.c_void_p * 3)(*[ctypes.addressof(words) + 8 * i for i in range(3)])
        self.kept_for_ever = [words, values]
        kernel = KernelNode(self.function.value, (ctypes.c_uint * 7)(1, 1, 1, 4, 1, 1, 0), ctypes.addressof(values))
        fill = Fill(self.memory.value, 0, 7, 4, 16, 1)
        host = HostNode(ctypes.cast(NOTHING, ctypes.c_void_p), None)
        sides = [Side(type=ON_HOST, host=self.pinned.value), Side(type=ON_DEVICE, device=self.memory.value)]
        copies = [Copy(source, to, 64, 1, 1) for source in sides for to in sides]
        self.structures = {"CUDA_KERNEL_NODE_PARAMS": [kernel], "CUDA_MEMSET_NODE_PARAMS": [fill],
                           "CUDA_HOST_NODE_PARAMS": [host], "CUDA_MEMCPY3D": copies}

    def make_nodes(self, graph, event):
        none = (graph, None, ctypes.c_size_t(0))
        first, of = ctypes.byref, self.structures
        nodes = [self.make("cuGraphAddEmptyNode", *none) for _ in range(2)]
        nodes.append(self.make("cuGraphAddEventRecordNode", *none, event))
        nodes.append(self.make("cuGraphAddEventWaitNode", *none, event))
        nodes.append(self.make("cuGraphAddKernelNode_v2", *none, first(of["CUDA_KERNEL_NODE_PARAMS"][0])))
        nodes.append(self.make("cuGraphAddMemsetNode", *none, first(of["CUDA_MEMSET_NODE_PARAMS"][0]), self.context))
        nodes.append(self.make("cuGraphAddHostNode", *none, first(of["CUDA_HOST_NODE_PARAMS"][0])))
        nodes += [self.make("cuGraphAddMemcpyNode", *none, first(each), self.context) for each in of["CUDA_MEMCPY3D"]]
        self.must("cuGraphAddDependencies", graph, (ctypes.c_void_p * 1)(nodes[0]),
                  (ctypes.c_void_p * 1)(nodes[1]), ctypes.c_size_t(1))
        return nodes

    def must(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result:
            raise SystemExit(f"FAILED: {name} {result}")

    def make(self, name, *arguments):
        out = ctypes.c_uint64()
        self.must(name, ctypes.byref(out), *[ctypes.c_void_p(each) if isinstance(each, int) and each > 1 << 31
                                             else each for each in arguments])
        return ctypes.c_void_p(out.value)

    def handle(self, draw, kind):
        if draw.random() < 0.1:
            kind = draw.choice(sorted(self.objects))
        each = draw.choice(self.objects.get(kind, [0]))
        return each if isinstance(each, int) else each.value

    def argument(self, draw, parameter, count):
        if parameter.pointers == 0 or parameter.address:
            if parameter.handle != "kNone":
                return self.handle(draw, parameter.handle)
            if parameter.base == "CUdeviceptr":
                return self.memory.value + draw.choice((0, 4, DEVICE_BYTES - 4, DEVICE_BYTES, -4))
            if parameter.base == "CUdevice":
                return draw.choice((0, 0, 0, 1, 99))
            return count if parameter.name in self.counts else draw.choice(NUMBERS)
        if parameter.base in self.structures:
            return ctypes.addressof(draw.choice(self.structures[parameter.base]))
        words = (ctypes.c_uint64 * 64)()
        for i in range(8):
            words[i] = self.handle(draw, parameter.handle) if parameter.handle != "kNone" else (
                self.memory.value if parameter.base == "CUdeviceptr" else draw.choice(NUMBERS))
        self.kept.append(words)
        return 0 if draw.random() < 0.1 else ctypes.addressof(words)

    def call(self, draw, row):
        self.kept.clear()
        count = draw.choice(COUNTS)
        self.counts = {each.count for each in row.parameters if each.count}
        arguments = [self.argument(draw, each, count) for each in row.parameters]
        self.must("cuCtxSetCurrent", None if draw.random() < 0.15 else self.context)
        got = getattr(self.cuda, row.symbol)(*[ctypes.c_uint64(each & (1 << 64) - 1) for each in arguments])
        self.must("cuCtxSetCurrent", self.context)
        return got, self.cuda.cuCtxSynchronize(), arguments


def is_drawn(row):
    """Calls that end objects or run the program's code have their own tests."""
    return (row.completion == "async" and row.emulated and row.target is row and not row.destroys
            and not any(each.opaque and each.base not in STRUCTURES for each in row.parameters)
            and not row.symbol.startswith(STANDS)
            and not row.symbol.startswith(("cuLaunch", "cuStreamBeginCapture", "cuMemFree")))


def main():
    types = cuda_types.CudaTypes(os.path.join(ROOT, "driver_abi/cuda_types.toml"))
    rows = table.load(os.path.join(ROOT, "driver_abi/cuda_driver.toml"), types,
                      names("emulated/implemented.list"))
    cuda = ctypes.CDLL("libcuda.so.1")
    if cuda.cuInit(0):
        return "no device"
    draw = random.Random(int(os.environ.get("GPURUN_TEST_SEED", "1")))
    world = World(cuda, sys.argv[1].encode())
    wrong = succeeded = 0
    for row in filter(is_drawn, rows):
        for _ in range(int(sys.argv[2])):
            got, later, arguments = world.call(draw, row)
            succeeded += got == 0
            if later:
                wrong += 1
                print(row.symbol, got, later, [hex(each & (1 << 64) - 1) for each in arguments], "WRONG")
                if cuda.cuCtxSynchronize():
                    return "the context is lost"
    print("enough succeeded" if succeeded > 100 else f"only {succeeded} succeeded")
    return f"{wrong} are wrong" if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
