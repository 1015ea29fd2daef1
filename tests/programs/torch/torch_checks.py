"""PyTorch, unmodified: operations without kernels of its own, compared with the CPU.

PyPI's wheels have only machine code, which the emulated device cannot run. It can run their calls
to NVIDIA's libraries. A check therefore copies its operands in, makes one library call, and
compares the copied output. usage: torch_checks.py GROUP...   (the last line is PASSED or FAILED)
"""
import os
import subprocess
import sys
import time

import torch
import torch.nn.functional as nn

cuda = torch.cuda
NO_IMAGE = "CUDA error: no kernel image is available for execution on the device"
GROUPS = {}
random = torch.Generator().manual_seed(7)


def group(check):
    GROUPS[check.__name__] = check
    return check


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=random).to(dtype)


def near(got, expected):
    """Returns whether they differ by no more than the type's rounding in sums of a few hundred
    terms."""
    bound = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 2e-2}[got.dtype]
    expected = expected.to(torch.float64)
    return bool((got.cpu().to(torch.float64) - expected).abs().max() <= bound * expected.abs().max())


def refusal(call):
    try:
        call()
        cuda.synchronize()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return "no error"


@group
def queries():
    free, total = cuda.mem_get_info()
    properties = cuda.get_device_properties(0)
    yield "available", cuda.is_available() and cuda.device_count() == 1 and cuda.current_device() == 0
    yield "name", cuda.get_device_name() == properties.name != ""
    yield "capability", cuda.get_device_capability() == (properties.major, properties.minor)
    yield "memory", 0 < free <= total == properties.total_memory
    yield "nothing is allocated", cuda.memory_allocated() == 0 == cuda.memory_reserved()
    yield "cuDNN", torch.backends.cudnn.is_available() and torch.backends.cudnn.version() > 90000
    yield "NCCL", cuda.nccl.version() > (2, 0)
    yield "limits", properties.multi_processor_count > 0 and properties.warp_size == 32


@group
def visible_devices():
    for value, expected in (("0", "True 1"), ("", "False 0"), ("7", "False 0")):
        done = subprocess.run([sys.executable, "-c", "import torch; c = torch.cuda; "
                               "print(c.is_available(), c.device_count())"], capture_output=True, text=True,
                              env=dict(os.environ, CUDA_VISIBLE_DEVICES=value), timeout=200)
        yield f"CUDA_VISIBLE_DEVICES={value}", done.stdout.strip() == expected


@group
def streams():
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    first, second = cuda.Stream(), cuda.Stream(priority=-1)
    source = normal(1 << 20).pin_memory()
    with cuda.stream(first):
        start.record()
        there = source.to("cuda", non_blocking=True)
        end.record()
    second.wait_event(end)
    with cuda.stream(second):
        back = torch.empty_like(source, pin_memory=True)
        back.copy_(there, non_blocking=True)
    second.synchronize()
    yield "a copy in on one, out on another", torch.equal(source, back)
    yield "events", end.query() and start.elapsed_time(end) >= 0 and first.query()
    cuda.current_stream().wait_stream(first)
    cuda.synchronize()
    yield "all is done", cuda.current_stream().query() and second.query()


@group
def allocation():
    def churn():
        for turn in range(30):
            values = normal(int(torch.randint(1, 3_000_000, (1,), generator=random)))
            there = values.cuda()
            if not torch.equal(torch.empty_like(there).copy_(there).cpu(), values):
                return False
            if turn % 10 == 9:
                cuda.empty_cache()
        return True

    yield "pieces of many sizes", churn()
    cuda.synchronize()  # With CUDA's pools memory is given back in the order of streams.
    yield "all is given back", cuda.memory_allocated() == 0
    cuda.empty_cache()
    before = cuda.mem_get_info()[0]
    large = torch.empty(300 << 20, dtype=torch.uint8, device="cuda")
    yield "a large one counts", before - cuda.mem_get_info()[0] >= 300 << 20 <= cuda.memory_allocated()
    del large
    cuda.empty_cache()
    yield "and is free again", cuda.mem_get_info()[0] == before
    try:
        torch.empty(cuda.mem_get_info()[1] * 2, dtype=torch.uint8, device="cuda")
        yield "more than there is", False
    except cuda.OutOfMemoryError:
        yield "more than there is", True
    yield "which is not the end", torch.zeros(5, device="cuda").cpu().tolist() == [0] * 5


@group
def copies():
    values = normal(3, 1000)
    there = values.cuda()
    yield "pageable", torch.equal(there.cpu(), values)
    pinned = values.pin_memory()
    yield "is pinned", pinned.is_pinned() and not values.is_pinned()
    back = torch.zeros(3, 1000).pin_memory()
    back.copy_(pinned.to("cuda", non_blocking=True), non_blocking=True)
    cuda.synchronize()
    yield "pinned", torch.equal(back, values)
    yield "device to device", torch.equal(there.clone().cpu(), values)
    yield "a view", torch.equal(there[1:].cpu(), values[1:])
    yield "an element", there[2, 7].item() == values[2, 7].item()
    there.zero_()
    yield "zeros", int(there.cpu().count_nonzero()) == 0
    whole = torch.arange(1000, dtype=torch.int64)
    yield "integers", torch.equal(whole.cuda().cpu(), whole)
    large = torch.randint(0, 255, (70 << 20,), dtype=torch.uint8, generator=random)
    yield "70 MiB", torch.equal(large.cuda().cpu(), large)


@group
def matmul():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        for rows, inner, columns in ((128, 256, 96), (17, 33, 9), (1, 64, 64)):
            a, b = normal(rows, inner, dtype=dtype), normal(inner, columns, dtype=dtype)
            yield (f"{rows}x{inner}x{columns} {dtype}",
                   near(a.cuda() @ b.cuda(), a.double() @ b.double()))
        a, b = normal(4, 24, 40, dtype=dtype), normal(4, 40, 16, dtype=dtype)
        yield f"bmm {dtype}", near(torch.bmm(a.cuda(), b.cuda()), torch.bmm(a.double(), b.double()))
        a, b = normal(48, 40, dtype=dtype), normal(40, dtype=dtype)
        yield f"matrix by vector {dtype}", near(a.cuda() @ b.cuda(), a.double() @ b.double())
        a, b = normal(40, 24, dtype=dtype), normal(40, 32, dtype=dtype)
        yield f"transposed {dtype}", near(a.cuda().t() @ b.cuda(), a.double().t() @ b.double())
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        a, weight, bias = normal(16, 32, dtype=dtype), normal(8, 32, dtype=dtype), normal(8, dtype=dtype)
        yield (f"linear with bias {dtype}", near(nn.linear(a.cuda(), weight.cuda(), bias.cuda()),
                                                 nn.linear(a.double(), weight.double(), bias.double())))


@group
def convolution():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        for layout in (torch.contiguous_format, torch.channels_last):
            if dtype == torch.float64 and layout == torch.channels_last:
                continue
            images = normal(2, 8, 16, 16, dtype=dtype).to(memory_format=layout)
            weights = normal(4, 8, 3, 3, dtype=dtype).to(memory_format=layout)
            for stride in (1, 2):
                yield (f"{dtype} {layout} stride {stride}",
                       near(nn.conv2d(images.cuda(), weights.cuda(), padding=1, stride=stride),
                            nn.conv2d(images.double(), weights.double(), padding=1, stride=stride)))

    def gradients(move):
        size = [[1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]]
        return torch.ops.aten.convolution_backward(*(move(t) for t in operands), None, *size)[:2]

    operands = [normal(2, 4, 12, 12), normal(2, 3, 12, 12), normal(4, 3, 3, 3)]
    pairs = zip(gradients(torch.Tensor.cuda), gradients(torch.Tensor.double))
    yield "its gradients", all(near(got, expected) for got, expected in pairs)
    torch.backends.cudnn.benchmark = True
    images, weights = normal(1, 3, 8, 8), normal(2, 3, 3, 3)
    yield ("the fastest of all algorithms", near(nn.conv2d(images.cuda(), weights.cuda()),
                                                 nn.conv2d(images.double(), weights.double())))


@group
def libraries():
    values = torch.complex(normal(64), normal(64))
    difference = (torch.fft.fft(values.cuda()).cpu() - torch.fft.fft(values)).abs().max()
    yield "cuFFT", float(difference) < 1e-4
    images, mean, variance = normal(2, 4, 8, 8), normal(4), normal(4).abs() + 1
    operands = (images, mean, variance, variance, mean)
    yield ("batch norm by cuDNN", near(nn.batch_norm(*(t.cuda() for t in operands)),
                                       nn.batch_norm(*(t.double() for t in operands))))
    sparse = torch.sparse_csr_tensor([0, 1, 3], [1, 0, 2], [2.0, 3.0, 4.0], size=(2, 3),
                                     check_invariants=True)
    dense = normal(3, 4)
    yield "cuSPARSE", near(sparse.cuda() @ dense.cuda(), (sparse @ dense).double())


@group
def graphs():
    a, b = normal(64, 64).cuda(), normal(64, 64).cuda()
    out = torch.empty(64, 64, device="cuda")
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):  # Once before, so that the libraries have loaded what they need.
        torch.mm(a, b, out=out)
    cuda.current_stream().wait_stream(side)
    first, second = cuda.CUDAGraph(), cuda.CUDAGraph()
    with cuda.graph(first):
        torch.mm(a, b, out=out)
    changed = normal(64, 64)
    a.copy_(changed)
    first.replay()
    expected = changed.double() @ b.cpu().double()
    yield "a matmul", near(out, expected)
    with cuda.graph(second, pool=first.pool()):
        between = torch.mm(a, b)
        twice = torch.mm(between, b)
    second.replay()
    yield "two, and memory of the graph", near(twice, expected @ b.cpu().double())
    first.reset()
    changed = normal(64, 64)
    a.copy_(changed)
    second.replay()
    yield "again", near(between, changed.double() @ b.cpu().double())
    del between, twice  # Frees the graph's own memory while the graph lives.
    cuda.synchronize()


class Values(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.full((100,), float(index))


def _in_child(answer):
    answer.put(float(torch.eye(8).cuda().mm(torch.eye(8).cuda()).cpu().sum()))


def _refused_in_child(answer):
    answer.put(refusal(lambda: torch.zeros(1).cuda()))


def ask_child(method, function):
    context = torch.multiprocessing.get_context(method)
    answer = context.Queue()
    child = context.Process(target=function, args=(answer,))
    child.start()
    try:
        return answer.get(timeout=200)
    finally:
        child.join(60)


@group
def processes():
    for method in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(Values(), batch_size=4, num_workers=2, pin_memory=True,
                                             multiprocessing_context=method)
        sums = []
        for batch in loader:
            if not batch.is_pinned():
                break
            sums.append(float(batch.to("cuda", non_blocking=True).cpu().sum()))
        yield f"a loader that pins, {method}", sums == [600, 2200, 3800]
    yield "CUDA in a child that was spawned", ask_child("spawn", _in_child) == 8
    said = ask_child("fork", _refused_in_child)
    yield "in one that was forked", said.startswith("Cannot re-initialize CUDA in forked subprocess")


def _add_to_shared(given, answer):
    """Sees the parent's tensors, writes to them, and keeps none."""
    small, large = given.get(timeout=200)
    seen = [float(small.cpu().sum()), float(large.cpu().sum())]
    small.copy_(small.cpu() + 1)
    large[-4:].copy_(torch.full((4,), 5.0))
    cuda.synchronize()
    del small, large
    answer.put(seen)
    given.get(timeout=200)


@group
def sharing():
    """Tensors that another process reads and writes, by handles of the driver."""
    context = torch.multiprocessing.get_context("spawn")
    given, answer = context.Queue(), context.Queue()
    small, large = torch.full((8, 8), 2.0).cuda(), torch.full((12 << 20,), 1.0).cuda()
    child = context.Process(target=_add_to_shared, args=(given, answer))
    child.start()
    given.put((small, large))
    yield "the child sees the parent's values", answer.get(timeout=200) == [128.0, float(12 << 20)]
    yield "the parent sees the child's", float(small.cpu().sum()) == 192 and float(large.cpu().sum()) == (12 << 20) + 16
    given.put("go on")
    child.join(60)
    yield "the child ends", child.exitcode == 0
    yield "the memory stays", float(large[-4:].cpu().sum()) == 20


@group
def own_kernels():
    matrix = torch.eye(8).cuda()
    for name, call in (("ones", lambda: torch.ones(10, device="cuda")), ("add", lambda: matrix + 1),
                       ("a transposed copy", lambda: matrix.t().contiguous()),
                       ("to another type", matrix.half), ("softmax", lambda: matrix.softmax(-1)),
                       ("random", lambda: torch.randn(4, device="cuda")),
                       ("again", lambda: torch.ones(10, device="cuda"))):
        said = refusal(call)
        yield f"{name} is refused", said == NO_IMAGE
        yield "which is not the end", float((matrix @ matrix).cpu().sum()) == 8


def main(names):
    failed = 0
    for name in names or GROUPS:
        begun = time.monotonic()
        for what, right in GROUPS[name]():
            failed += not right
            print(f"{name}: {what}: {'right' if right else 'WRONG'}", flush=True)
        print(f"{name}: {time.monotonic() - begun:.1f} s", file=sys.stderr)
    print("FAILED" if failed else "PASSED")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
