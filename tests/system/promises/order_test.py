#!/usr/bin/env python3
"""Order over a late, uneven and slow link. Two threads hand a buffer over by mutexes, events and
streams and never find an earlier value. Work that is answered early is done as far as the program
can tell, and also for another process that shares memory with it. A large copy on one stream does
not delay another.

Its words: the image and the programs handover, early_answers, upload_waits, polls, large_copy,
interprocess [SEED]. The long run: GPURUN_ORDER_ROUNDS=10000 GPURUN_ORDER_COPY_MIB=256
(docs/testing.md).
"""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

POLL_ROUNDS = 40
ROUNDS = int(os.environ.get("GPURUN_ORDER_ROUNDS", "60" if world.ARGS.sanitizer else "300"))
COPY_BYTES = int(os.environ.get("GPURUN_ORDER_COPY_MIB", "16")) << 20
ROUND_TRIP_S = 0.002
LINK_BYTES_PER_S = 100_000_000 // 8  # 100 Mbit/s.
COPY_TIMEOUT_S = 60 + 10 * COPY_BYTES / LINK_BYTES_PER_S


def passes(server, link, command, timeout):
    """Returns the failures in a list."""
    done = world.measured(server, command, link.address, timeout)
    name = os.path.basename(command[0])
    print(f"-- {name}, {done.seconds:.1f} s: {done.stdout.strip()}", flush=True)
    if done.status == 0 and "PASSED" in done.stdout:
        return []
    return [f"{name}: status {done.status}\n{done.stdout}{done.stderr}{server.log()}"]


def main():
    image, handover, early_answers, upload_waits, polls, large_copy, interprocess = sys.argv[1:8]
    seed = int(sys.argv[8]) if len(sys.argv) > 8 else random.randrange(1 << 30)
    print(f"seed {seed}")
    with world.Gpurund(over="tcp") as server:
        with world.DelayedLink(server.port(), ROUND_TRIP_S, seed=seed) as link:
            wrong = passes(server, link, [handover, image, str(ROUNDS)], 60 + ROUNDS)
            wrong += passes(server, link, [early_answers, image], 240)
            wrong += passes(server, link, [upload_waits, image], 240)
            wrong += passes(server, link, [polls, image, str(POLL_ROUNDS)], 240)
            for what in ("memory", "early", "events", "death"):
                wrong += passes(server, link, [interprocess, image, what], 240)
        with world.DelayedLink(server.port(), ROUND_TRIP_S, bytes_per_s=LINK_BYTES_PER_S) as link:
            wrong += passes(server, link, [large_copy, image, str(COPY_BYTES)], COPY_TIMEOUT_S)
    if wrong:
        print("WRONG:", *wrong, sep="\n")
    return 1 if wrong else 0


sys.exit(main())
