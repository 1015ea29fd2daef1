// verbs_double: a libibverbs.so.1 without RDMA hardware, for tests. Programs open it by dlopen.
//
// Each process has one NIC, a thread that starts with the first open device. QPs of one process or
// of two reach each other through local sockets. The NIC copies the data into registered memory.
// Only reliable connections (RC) exist. A transport can notice these semantics of hardware:
//  - A send-queue slot is free once the program has polled a completion at or after the request.
//  - A QP that is not connected fails with RETRY_EXC. The time is that of the kernel,
//    (retry_cnt + 1) x 4.096 us x 2^timeout. A slow peer that keeps its connection is not lost.
//  - A RDMA WRITE is placed at the next receive completion or RDMA READ of the peer's QP.
//    Polling data bytes in place of completions therefore shows stale data. The end of that QP
//    places the data, too. So does the end of a region of its protection domain.
//  - The data of a RDMA READ are placed when the program polls its completion, or a later one.
//  Memory
//    that is read earlier has old data.
//  - ibv_req_notify_cq reports only completions that come after it.
//  - A QP that has executed requests takes no new connection before it has been in RESET.
//  - A child of fork() has no objects. It may open devices of its own.
//  - ibv_reg_dmabuf_mr maps the descriptor from its position on, as the emulated device gives it.
//  - ibv_destroy_cq and ibv_destroy_qp block until the program has acknowledged its events.
//
// Settings are environment variables. ibv_get_device_list reads them while no device is open.
// A wrong setting is printed to stderr, and ibv_get_device_list fails with EINVAL.
//
// VERBS_DOUBLE_FABRIC (default "default") is a name that the processes of one test share.
//   Sockets are in the abstract namespace, which is one per network namespace. A name with a `/` is
//   a folder for socket files, which processes of other network namespaces reach.
//
// VERBS_DOUBLE_TIMEOUT_PERCENT (100) scales the timeouts of lost peers and missing receives.
//
// VERBS_DOUBLE_COUNTERS is a file to which all processes add their counters. It need not exist.
//
// VERBS_DOUBLE_DEVICES (default "rdma0") is `NAME KEY=VALUE ...` for each device, with `;` between
//   them. An empty value means no device.
//
//     profile=full         Hardware without gaps. It is the default.
//     profile=pvrdma       4 SGEs, no inline data, RoCE v1 only, immediate=plain.
//     profile=send_only    The same as rdma=no.
//     link=ethernet|infiniband   Ethernet is RoCE, and the default.
//     ports=N (1)          mtu=256|512|1024|2048|4096 (1024)   lid=N (0, InfiniBand 1).
//     gids=TYPE/IP,...     TYPE is v1, v2 or ib. (v1 and v2 of fe80::1, 127.0.0.1 and ::1)
//     inline=BYTES (512)   sge=N (32)   message=BYTES (8388608)   wr=N (8192)   cqe=N (65536).
//     reads=N (16)         atomics=0|1 (0, reported only)   odp=0|1 (0).
//     grh=0|1 (0)          The InfiniBand port requires a global header.
//     dmabuf=0|1 (1)       0: ibv_reg_dmabuf_mr fails with EOPNOTSUPP.
//     immediate=plain      WRITE WITH IMMEDIATE arrives as a plain receive. (with)
//     rdma=no              RDMA requests fail at the post. (yes)
//
// VERBS_DOUBLE_FAULTS is `ACTION KEY=VALUE ...` for each fault, with `;` between them. `at` counts
//   from 1, over the requests of `kind` in the process. A kind is send, send_imm, write, write_imm,
//   read, recv or any (default). `posts` and `bytes` count posts to send queues since the fault was
//   set. An error is a name such as ENOMEM. A status is a number of ibv_wc_status.
//
//     post_fails at=N kind=K error=E        The post returns this error.
//     completes_with at=N kind=K status=S   The request completes so, and its QP goes to ERR. A
//                                           receive only completes so.
//     loses_completion at=N kind=K          The request's completion never comes.
//     places_late at=N kind=K by=M          The data of a received write are placed M messages
//                                           later, even after their completion. Those of a read: M
//                                           polled completions later.
//     breaks_qp posts=N | bytes=N           The posting QP goes to ERR, with the event QP_FATAL.
//     cuts_qp posts=N | bytes=N             The posting QP loses its peer, silently.
//     stops_qp posts=N | bytes=N            The posting QP sends nothing more. No request of it
//                                           completes, as with rxe on an interface that went down.
//     port_down port=P [posts=N | bytes=N]  An event comes, and the port's QPs lose their peers.
//     port_up port=P                        An event comes. QPs may connect after a RESET.
//     memlock bytes=N                       Registrations beyond N bytes in total fail.
//     mr_fails [at=N] error=E               ibv_reg_mr fails, each one or the Nth since now.
//     dmabuf_fails [at=N] error=E           The same for ibv_reg_dmabuf_mr.
//     open_fails error=E                    ibv_open_device fails.
//     delays us=N                           Each request waits so long before it leaves.
#pragma once

#include <cstdint>

// What happened since the library was loaded. Each field counts up and never returns to 0.
struct verbs_double_counts {  // NOLINT(readability-identifier-naming): a C interface.
  std::uint64_t posted_send;
  std::uint64_t posted_send_imm;
  std::uint64_t posted_write;
  std::uint64_t posted_write_imm;
  std::uint64_t posted_read;
  std::uint64_t posted_recv;
  std::uint64_t posted_inline;     // Requests with inline data.
  std::uint64_t posted_signaled;   // Requests with a completion.
  std::uint64_t posted_bytes;      // Payload of all send-queue requests, and of reads.
  std::uint64_t post_calls;        // Calls of ibv_post_send: doorbells.
  std::uint64_t inline_bytes;      // Copied by the posting thread.
  std::uint64_t gathered_bytes;    // Read from registered memory by the NIC.
  std::uint64_t placed_bytes;      // Written to registered memory by the NIC.
  std::uint64_t registrations;     // Successful ones.
  std::uint64_t registered_bytes;  // In total, without regard to deregistration.
  std::uint64_t deregistrations;
  std::uint64_t completions;         // Added to CQs.
  std::uint64_t failed_completions;  // Those with a status other than success.
  std::uint64_t events;              // Written to completion channels.
  std::uint64_t notify_requests;     // Calls of ibv_req_notify_cq.
  std::uint64_t not_ready;           // Requests that met no posted receive.
  std::uint64_t read_bytes;          // Of posted_bytes, those that reads have brought.
  std::uint64_t event_reads;         // Calls of ibv_get_cq_event.
  std::uint64_t written_bytes;       // Of posted_bytes, those of RDMA WRITE without an immediate.
  std::uint64_t dma_bufs;            // Of registrations, those of dma-bufs.
};

extern "C" {
// Copies the counts of this process, or of all processes that share VERBS_DOUBLE_COUNTERS. Any
// thread.
void verbs_double_counters(struct verbs_double_counts* out);
// Adds faults, in the grammar of VERBS_DOUBLE_FAULTS. Returns 0, or EINVAL with a message on
// stderr. Any thread.
int verbs_double_inject(const char* faults);
}
