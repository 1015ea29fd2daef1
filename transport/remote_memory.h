// RemoteMemory: memory at one end of a connection that the device of the other end reads by itself.
//
// One end lends memory. The other end reads it into memory of its own, and no thread of the lending
// end takes part. A carrier over RDMA has this (transport/rdma). Bytes that are read do not pass
// through the connection, and have no order with those that do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/deadline.h"
#include "base/result.h"

namespace gpurun::transport {

class RemoteMemory {
 public:
  RemoteMemory() = default;
  RemoteMemory(const RemoteMemory&) = delete;
  RemoteMemory& operator=(const RemoteMemory&) = delete;
  virtual ~RemoteMemory() = default;

  // False: reads do not work any more, and never will. Any thread.
  virtual bool works() const noexcept = 0;

  // For the lending end. Any thread.

  // Lets the other end read `memory`, and nothing else, until take_back() or the end of the
  // connection. Returns the key that the other end needs. Blocks while the kernel locks the pages.
  //   kUnavailable        works() is false.
  //   kResourceExhausted  the device or a limit refuses it. The message says how to raise a limit.
  virtual Result<std::uint32_t> lend(ByteView memory) = 0;
  // A read of the memory that is under way fails, and the carrier with it.
  virtual void take_back(std::uint32_t key) noexcept = 0;

  // For the reading end.

  // Names the memory that reads fill. Once, before the first read. Errors as lend().
  virtual Status enroll(MutableBytes memory) = 0;
  // No read fills that memory afterwards. Call it before the memory ends.
  virtual void withdraw() noexcept = 0;
  // At most so many bytes in one read.
  virtual std::size_t read_bytes_max() const noexcept = 0;

  struct Read {
    std::byte* into = nullptr;  // In the enrolled memory.
    std::uint64_t from = 0;     // An address of the lending end.
    std::uint32_t key = 0;
    std::uint32_t bytes = 0;
    std::uint64_t id = 0;
  };
  enum class Began : std::uint8_t {
    kYes,
    kLater,  // As many reads are under way as the devices allow.
    kFailed
  };
  // Does not block. Any thread.
  virtual Began begin_read(const Read& read) noexcept = 0;

  struct Ended {
    std::uint64_t id = 0;
    bool right = false;  // All bytes are there. False: some may be.
  };
  // Waits for reads that have ended, in any way, and returns how many of `ended` it has set. 0: the
  // deadline. A read without an end may still write its memory. One thread at a time.
  virtual std::size_t await_reads(std::span<Ended> ended, Deadline deadline) noexcept = 0;
  // Gives up the carrier. The reads under way end soon, and the connection goes on over its socket.
  virtual void give_up() noexcept = 0;
};

}  // namespace gpurun::transport
