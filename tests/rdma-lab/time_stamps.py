"""Time stamps: the rate of the processor's time stamp counter (TSC). A guest of QEMU without KVM reads the counter
of its machine. Its kernel measures the rate as it boots, and errs by a factor on a busy machine, so that the
guest's clock is wrong by that factor. So lab.py gives the kernel the rate (tsc_early_khz)."""
import ctypes
import mmap
import time

# rdtsc; shl $32, %rdx; or %rdx, %rax; ret
READ = b"\x0f\x31\x48\xc1\xe2\x20\x48\x09\xd0\xc3"
TRIES = 100  # The fastest one counts, which nothing has interrupted.
SPAN_SECONDS = 0.1


def khz():
    """The rate of this machine's counter."""
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
        page.write(READ)
        place = ctypes.c_char.from_buffer(page)
        read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(place))

        def reading():
            """Both clocks at one time, and how far apart they were read."""
            begin = time.monotonic_ns()
            count = read()
            end = time.monotonic_ns()
            return end - begin, begin, count

        _, first, first_count = min(reading() for _ in range(TRIES))
        time.sleep(SPAN_SECONDS)
        _, last, last_count = min(reading() for _ in range(TRIES))
        del read, place  # The page can be unmapped only without them.
        return round((last_count - first_count) * 1e6 / (last - first))
