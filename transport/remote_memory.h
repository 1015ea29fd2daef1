// RemoteMemory: memory at one end of a connection that the device of the other end reads or writes
// by itself.
//
// One end lends memory, for reading or for writing. The other end reads it into memory of its own,
// or writes it from there. No thread of the lending end takes part. A carrier over RDMA has this
// (transport/rdma). Such bytes do not pass through the connection. Reads have no order with the
// bytes that do. Bytes that the connection takes behind the report of a write reach the lending end
// behind that write, while the connection uses the carrier.
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

  // False: reads and writes do not work any more, and never will. Any thread.
  virtual bool works() const noexcept = 0;

  // For the lending end. Any thread.

  // Lets the other end read `memory`, and nothing else, until take_back() or the end of the
  // connection. Returns the key that the other end needs. Blocks while the kernel locks the pages.
  //   kUnavailable        works() is false.
  //   kResourceExhausted  the device or a limit refuses it. The message says how to raise a limit.
  virtual Result<std::uint32_t> lend(ByteView memory) = 0;
  // As lend(), for writing alone. kUnavailable: writes() is false.
  virtual Result<std::uint32_t> lend_for_writing(MutableBytes memory) {
    static_cast<void>(memory);
    return Status(Code::kUnavailable, "its devices do not write");
  }
  // For both. A read or write of the memory that is under way fails, and the carrier with it. No
  // write changes the memory afterwards, and every write that was reported is in place.
  virtual void take_back(std::uint32_t key) noexcept = 0;
  // Whether the devices of both ends write.
  virtual bool writes() const noexcept { return false; }

  // For the reading end.

  // Names the memory that reads fill. Once, before the first read. Errors as lend().
  virtual Status enroll(MutableBytes memory) = 0;
  // No read fills that memory afterwards. Call it before the memory ends.
  virtual void withdraw() noexcept = 0;
  // Memory of a device that reads fill, too (docs/adr/0055). `dma_buf` is a descriptor that stands
  // for all of it, or -1: the kernel knows the address by itself (peer memory). The caller keeps
  // the descriptor.
  struct DeviceMemory {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    int dma_buf = -1;
  };
  // Returns the key for Read::into_key. Any number of times. Blocks while the kernel finds the
  // pages. Errors as lend().
  virtual Result<std::uint32_t> enroll_device(const DeviceMemory& /*memory*/) {
    return Status(Code::kUnavailable, "this carrier reads into no memory of a device");
  }
  // As withdraw(), for one such memory. False: the device has not given it up.
  virtual bool withdraw_device(std::uint32_t /*key*/) noexcept { return true; }
  // At most so many bytes in one read or write.
  virtual std::size_t read_bytes_max() const noexcept = 0;

  struct Read {
    std::byte* into = nullptr;  // In the enrolled memory, or in a device's with `into_key`.
    std::uint64_t from = 0;     // An address of the lending end.
    std::uint32_t key = 0;
    std::uint32_t bytes = 0;
    std::uint64_t id = 0;
    std::uint32_t into_key = 0;  // Of enroll_device(). 0: the memory of enroll().
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

  // For the writing end, where writes() is true.

  // Names the memory that writes take their bytes from. Once, before the first write. Errors as
  // lend().
  virtual Status enroll_source(MutableBytes memory) {
    static_cast<void>(memory);
    return Status(Code::kUnavailable, "its devices do not write");
  }
  // No write reads that memory afterwards. Call it before the memory ends.
  virtual void withdraw_source() noexcept {}

  struct Write {
    const std::byte* from = nullptr;  // In the enrolled memory.
    std::uint64_t to = 0;             // An address of the lending end.
    std::uint32_t key = 0;
    std::uint32_t bytes = 0;  // At most read_bytes_max().
    std::uint64_t id = 0;
  };
  // As begin_read() and await_reads(). Writes end in their order. A write that has ended right is
  // in the memory of the lending end. A write without an end may still change that memory.
  virtual Began begin_write(const Write& write) noexcept {
    static_cast<void>(write);
    return Began::kFailed;
  }
  virtual std::size_t await_writes(std::span<Ended> ended, Deadline deadline) noexcept {
    static_cast<void>(ended);
    static_cast<void>(deadline);
    return 0;
  }

  // Gives up the carrier. The reads and writes under way end soon, and the connection goes on over
  // its socket.
  virtual void give_up() noexcept = 0;
};

}  // namespace gpurun::transport
