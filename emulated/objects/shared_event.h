// SharedEvent: the part of a CU_EVENT_INTERPROCESS event that processes share, in a memory file. It
// counts the event's records, and knows which of the latest ones are complete.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "emulated/objects/ipc_file.h"

namespace gpurun::emulated {

class SharedEventFile;

// Any thread of any process. The file's contents are not trusted. A process that writes wrong
// values harms only the processes that wait for its event.
class SharedEvent {
 public:
  // A new event of this process. nullptr: no file can be had.
  static std::shared_ptr<SharedEvent> create();
  // An event of another process. nullptr: the handle names no event.
  static std::shared_ptr<SharedEvent> open(const IpcHandle& handle);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  // Makes a handle for other processes, the same each time. False: the event cannot be shared, or
  // is of another process.
  bool share(IpcHandle* handle);
  // The descriptor of the file that share() names.
  int file() const;

  // The number of the last record. 0: never recorded.
  std::uint64_t last() const;
  // Begins a new record, which becomes the last one.
  std::uint64_t begin();
  bool done(std::uint64_t record) const;
  void complete(std::uint64_t record);
  // Waits until the record is done, or until the process that made the event has ended.
  void wait(std::uint64_t record) const;

 private:
  SharedEvent(std::shared_ptr<SharedEventFile> file, std::uint32_t place, bool own)
      : file_(std::move(file)), place_(place), own_(own) {}

  const std::shared_ptr<SharedEventFile> file_;
  const std::uint32_t place_;
  const bool own_;
};

}  // namespace gpurun::emulated
