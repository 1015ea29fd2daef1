// TsanSendAnnotation: marks a send of a piece of the program's memory from where it lies.
//
// Before the send returns here, the worker's answer to the last byte may come and the program may
// overwrite the piece. That is correct, because the worker has every byte by then. But only the
// network orders it. ThreadSanitizer notes what a send has read when it returns, and reports a race
// with the program. So the piece counts as read from the start of the send on.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/bytes.h"

#ifdef GPURUN_TSAN
// Of its runtime. No header declares them (compiler-rt: lib/tsan/rtl/tsan_interface.cpp and
// tsan_interface_ann.cpp).
extern "C" {
void __tsan_read_range(void* start, unsigned long bytes);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}
#endif

namespace gpurun::client {

// Lives as long as one thread's send. It adds to `pieces_read`, and a thread that acquires the
// count comes after the reads.
class TsanSendAnnotation {
 public:
  TsanSendAnnotation([[maybe_unused]] ByteView piece, std::atomic<std::uint64_t>& pieces_read) {
#ifdef GPURUN_TSAN
    __tsan_read_range(const_cast<std::byte*>(piece.data()), piece.size());
#endif
    pieces_read.fetch_add(1, std::memory_order_acq_rel);
#ifdef GPURUN_TSAN
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
#endif
  }
#ifdef GPURUN_TSAN
  ~TsanSendAnnotation() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
#endif
  TsanSendAnnotation(const TsanSendAnnotation&) = delete;
  TsanSendAnnotation& operator=(const TsanSendAnnotation&) = delete;
};

}  // namespace gpurun::client
