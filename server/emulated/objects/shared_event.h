// SharedEvent: what an event of CU_EVENT_INTERPROCESS is to all processes that have it: a count of
// its records, and which of the latest ones are complete, in a memory file.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "server/emulated/objects/ipc_file.h"

namespace gpurun::emulated {

class SharedEventFile;

// Any thread of any process. What the file says is not trusted: whoever lies in it hurts those that
// wait for his event.
class SharedEvent {
 public:
  // One of this process's own; nullptr: no file can be had.
  static std::shared_ptr<SharedEvent> create();
  // Another process's. nullptr: the handle names none.
  static std::shared_ptr<SharedEvent> open(const IpcHandle& handle);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  // For other processes; the same each time. False: it cannot be shared, or is not ours.
  bool share(IpcHandle* handle);
  // Where what share() named lies.
  int file() const;

  // Of the last record; 0: never recorded.
  std::uint64_t last() const;
  // A new record, the last one from now on.
  std::uint64_t begin();
  bool done(std::uint64_t record) const;
  void complete(std::uint64_t record);
  // Until it is done, or the process that made it has ended.
  void wait(std::uint64_t record) const;

 private:
  SharedEvent(std::shared_ptr<SharedEventFile> file, std::uint32_t place, bool own)
      : file_(std::move(file)), place_(place), own_(own) {}

  const std::shared_ptr<SharedEventFile> file_;
  const std::uint32_t place_;
  const bool own_;
};

}  // namespace gpurun::emulated
