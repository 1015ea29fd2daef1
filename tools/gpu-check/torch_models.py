"""Timed models of PyTorch: writes a line of JSON for each to FILE, {"row", "ms", "check"}. The check is one of
the computed numbers, in full precision. It must be the same natively and through gpurun.

usage: torch_models.py FILE [NAME...]
"""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as nn

torch.backends.cudnn.benchmark = False
torch.use_deterministic_algorithms(False)
ROWS = {}


def row(measure):
    ROWS[measure.__name__] = measure
    return measure


def timed(step, times, warm=3):
    """Returns the median milliseconds of a step, and the last step's check. Each step ends in a synchronise."""
    took = []
    for i in range(warm + times):
        torch.cuda.synchronize()
        began = time.perf_counter()
        last = step()
        torch.cuda.synchronize()
        took.append(1000 * (time.perf_counter() - began))
    return statistics.median(took[warm:]), float(last)


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x, cache=None):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm_1(x)).chunk(3, -1))
        if cache is not None:
            if cache:
                k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
            cache[:] = (k, v)
        y = nn.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.gelu(self.up(self.norm_2(x))))


class Gpt2(torch.nn.Module):
    """The shape of GPT-2 small: 124 million random parameters."""

    def __init__(self, words=50257, width=768, heads=12, layers=12, length=1024):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(words, width), torch.nn.Embedding(length, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, tokens, at=0, caches=None):
        places = torch.arange(at, at + tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.places(places)
        for i, block in enumerate(self.blocks):
            x = block(x, None if caches is None else caches[i])
        return self.norm(x) @ self.words.weight.T


def gpt2():
    torch.manual_seed(1)
    return Gpt2().cuda().bfloat16()


@row
def launch_and_synchronise():
    x = torch.zeros(64, device="cuda")
    def step():
        x.add_(1)
        return 0
    yield "one small kernel and a synchronise", *timed(step, 500, 50)
    def many():
        for _ in range(1000):
            x.add_(1)
        return 0
    yield "a thousand small kernels and a synchronise", *timed(many, 10)
    yield "one number read", *timed(lambda: x[0].item() * 0, 300, 20)


@row
def gemm():
    torch.manual_seed(1)
    for size, kind in ((1024, torch.float32), (4096, torch.bfloat16), (8192, torch.bfloat16)):
        a, b = (torch.randn(size, size, device="cuda").to(kind) for _ in range(2))
        def step():
            for _ in range(10):
                c = a @ b
            step.c = c
            return 0
        ms, _ = timed(step, 10)
        yield f"10 GEMMs of {size}, {str(kind)[6:]}", ms, float(step.c.double().sum())


@row
def copies():
    for name, pinned in (("pageable", False), ("pinned", True)):
        host = torch.ones(64 << 20, dtype=torch.uint8, pin_memory=pinned)
        host.random_(0, 255, generator=torch.Generator().manual_seed(3))
        device = torch.empty_like(host, device="cuda")
        def into():
            device.copy_(host, non_blocking=pinned)
            return 0
        def back():
            host.copy_(device, non_blocking=pinned)
            return 0
        yield f"64 MiB in, {name}", *timed(into, 8)
        yield f"64 MiB out, {name}", *timed(back, 8)


@row
def graphs():
    x = torch.zeros(1 << 16, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            x.mul_(1.0001).add_(1)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(50):
            x.mul_(1.0001).add_(1)
    def step():
        for _ in range(20):
            graph.replay()
        return 0
    ms, _ = timed(step, 20)
    yield "20 launches of a graph of 100 kernels", ms, float(x.double().sum())


@row
def resnet50():
    import torchvision
    torch.manual_seed(1)
    net = torchvision.models.resnet50(weights=None).cuda().half().eval().to(memory_format=torch.channels_last)
    with torch.no_grad():
        for batch in (1, 256):
            images = torch.randn(batch, 3, 224, 224, device="cuda").half().to(memory_format=torch.channels_last)
            yield f"ResNet-50, f16, inference of {batch}", *timed(lambda: net(images).double().sum(), 20, 5)
    net.train()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    images, labels = images[:64], torch.randint(0, 1000, (64,), device="cuda")
    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = nn.cross_entropy(net(images).float(), labels)
        loss.backward()
        optimizer.step()
        return loss.item()
    ms, _ = timed(step, 10)
    yield "ResNet-50, f16, training step of 64", ms, 0.0  # cuDNN may add gradients in any order.


@row
def gpt2_training():
    net = gpt2()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, 50257, (8, 513), device="cuda", generator=torch.Generator("cuda").manual_seed(2))
    def step():
        optimizer.zero_grad(set_to_none=True)
        logits = net(tokens[:, :-1]).float()
        loss = nn.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.item()
    ms, _ = timed(step, 20)
    yield "GPT-2 small, bf16, training step of 8 x 512", ms, 0.0  # Gradients may be added in any
                                                                  # order.


@row
def gpt2_decode():
    net = gpt2().eval()
    def step():
        caches = [[] for _ in net.blocks]
        tokens = torch.arange(32, device="cuda")[None]
        at, said = 0, []
        with torch.no_grad():
            for _ in range(32):
                logits = net(tokens, at, caches)
                at += tokens.shape[1]
                tokens = logits[:, -1:].argmax(-1)
                said.append(tokens.item())
        return sum((i + 1) * word for i, word in enumerate(said))
    ms, check = timed(step, 5, 2)
    yield "GPT-2 small, bf16, 32 tokens one by one", ms, check


def main():
    failed = False
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        for name in sys.argv[2:] or ROWS:
            began = time.perf_counter()
            try:
                for what, ms, check in ROWS[name]():
                    file.write(json.dumps({"row": what, "ms": ms, "check": check}) + "\n")
                    file.flush()
            except (RuntimeError, ImportError) as error:
                failed = True  # Later models may still run, because not every error ends a context.
                print(f"{name}: {str(error)[:600]}", file=sys.stderr, flush=True)
            print(f"{name}: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
