"""Groups of the bench: each measures and returns rows. docs/performance.md describes their purpose."""
import calls
import emulated
import loops
import record_forms
import sequences
import sessions
import smaller_logs
import start

GROUPS = {
    "posted": ("calls that return at once", calls.posted),
    "fences": ("calls that wait, over TCP loopback", calls.fences),
    "behind-kernels": ("waits for kernels that take a while (null device)", calls.behind_kernels),
    "objects": ("making and destroying", calls.objects),
    "copies": ("copies, over TCP loopback", calls.copies),
    "tls": ("the same with TLS", calls.tls),
    "shm-posted": ("calls that return at once, over shared memory", calls.shm_posted),
    "shm-waits": ("calls that wait, over shared memory", calls.shm_waits),
    "shm-copies": ("copies, over shared memory", calls.shm_copies),
    "slow-link": ("copies over a link of 1 Gbit/s and 1 ms", calls.slow_link),
    "sequences": ("what the bytes of repeated calls cost", sequences.measure),
    "records": ("a launch's record, and the same as a message of Cap'n Proto", record_forms.measure),
    "smaller-logs": ("ways to send the records of calls in fewer bytes, on recorded logs", smaller_logs.measure),
    "lone": ("when a launch starts that no other call follows (emulated device)", calls.lone),
    "emulated": ("kernels on the emulated device, beside plain loop nests", emulated.measure),
    "start": ("start-up, from the first call to the first kernel's result", start.measure),
    "steady": ("a loop of launches, of which each turn reads a result", loops.steady),
    "mnist": ("sample_mnist's start and its loop (null device)", loops.mnist),
    "sessions": ("sessions that do nothing, and one beside a neighbour that saturates", sessions.measure),
    "shm-sessions": ("the same over shared memory", sessions.over_shared_memory),
}
