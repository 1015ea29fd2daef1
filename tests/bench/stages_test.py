#!/usr/bin/env python3
"""Profile of the bench's rows: the thread and the stage that each sample counts for."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stages  # noqa: E402

SAID = """\
gpurun-bulk-in  101/103  [000]
\tffffffff81a00001 rep_movs_alternative ([kernel.kallsyms])
\tffffffff81a00002 _copy_to_iter ([kernel.kallsyms])
\tffffffff81a00003 tcp_recvmsg ([kernel.kallsyms])
\tffffffff81a00004 __x64_sys_recvmsg ([kernel.kallsyms])
\tffffffff81a00005 do_syscall_64 ([kernel.kallsyms])
\t    7f0000000001 __libc_recvmsg (/usr/lib/x86_64-linux-gnu/libc.so.6)

gpurun-bulk-in  101/103  [000]
\t    7f0000000002 __memmove_avx512_unaligned_erms (/usr/lib/x86_64-linux-gnu/libc.so.6)

Sleeper of two words  201/201  [001]
\tffffffff81a00006 _raw_spin_lock ([kernel.kallsyms])
\tffffffff81a00007 try_to_wake_up ([kernel.kallsyms])
\tffffffff81a00008 tcp_v4_rcv ([kernel.kallsyms])
\tffffffff81a00009 __x64_sys_sendmsg ([kernel.kallsyms])

swapper     0/0     [001]
\tffffffff81a0000a default_idle ([kernel.kallsyms])

gpurun-send  101/104  [001]
\t    560000000001 gpurun::client::Sender::run (/home/a (deleted)/libcuda.so.1)

gpurun-send  101/104  [001]
\t    560000000002 aesni_gcm_encrypt (/home/libcuda.so.1)

gpurun-send  101/104  [001]
\t    560000000002 ..@3342._16_blocks_ok (/home/libcuda.so.1)

gpurun-send  101/104  [001]
\t    560000000003 x25519_scalar_mult (/home/libcuda.so.1)

gpurun-send  101/104  [001]
\tffffffff81a0000b clear_page_erms ([kernel.kallsyms])
\tffffffff81a0000c asm_exc_page_fault ([kernel.kallsyms])
\t    560000000004 LZ4_compress_fast (/home/libcuda.so.1)

gpurun-send  101/104  [001]
\tffffffff81a00010 tcp_sendmsg_locked ([kernel.kallsyms])
\tffffffff81a00011 ____sys_sendmsg ([kernel.kallsyms])

gpurun-send  101/104  [001]
\tffffffff81a00012 finish_task_switch.isra.0 ([kernel.kallsyms])
\tffffffff81a00013 exit_to_user_mode_loop ([kernel.kallsyms])
\tffffffff81a00014 do_syscall_64 ([kernel.kallsyms])
\t    7f0000000005 __libc_recv (/usr/lib/x86_64-linux-gnu/libc.so.6)

gpurun-send  101/104  [001]
\tffffffff81a0000d sysvec_apic_timer_interrupt ([kernel.kallsyms])
"""


class Stages(unittest.TestCase):
    def test_stage_of_classifies_each_sample(self):
        samples = list(stages.read(SAID.splitlines()))
        self.assertEqual([stages.stage_of(sample) for sample in samples],
                         ["recvmsg: the kernel's copy", "copies in the process", "sendmsg: wake-ups", "idle",
                          "own code", "the cipher", "the cipher", "cryptography but the cipher", "page faults: fresh pages",
                          "sendmsg: the rest", "recv: switches", "interrupts"])
        self.assertEqual((samples[2].comm, samples[2].pid, samples[2].tid, samples[2].cpu),
                         ("Sleeper of two words", 201, 201, 1))

    def test_shares_are_fractions_of_one_processor(self):
        profile = stages.Profile(stages.read(SAID.splitlines()), seconds=2, hertz=10,
                                 role_of=lambda sample: {101: "client", 201: "worker"}[sample.pid])
        self.assertEqual(profile.share(5), 0.25)
        lines = list(profile.lines())
        self.assertEqual(lines[0], "  processor 0: client 10 %, idle 90 %")
        self.assertEqual(lines[1], "  processor 1: client 40 %, worker 5 %, idle 55 %")
        self.assertIn("  client, gpurun-bulk-in: 10 % (recvmsg: the kernel's copy 5, copies in the process 5)", lines)
        self.assertEqual(len(lines), 5)

    def test_lines_omit_small_shares(self):
        profile = stages.Profile(stages.read(SAID.splitlines()), 2, 10, lambda sample: "any")
        self.assertEqual(len(list(profile.lines(least=0.2))), 3)

    def test_lines_give_time_for_each_unit(self):
        profile = stages.Profile(stages.read(SAID.splitlines()), 2, 10, lambda sample: "any")
        self.assertIn("  any, gpurun-bulk-in: 50 ms (recvmsg: the kernel's copy 25, copies in the process 25)",
                      list(profile.lines(unit=2000, unit_name="ms", units=4)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
