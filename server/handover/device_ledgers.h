// DeviceLedgers: one file for each device of an emulated driver, by which its workers share the
// device's memory (emulated/memory_ledger.h, docs/adr/0012). The daemon only makes the files
// and passes them on. It reads nothing in them.
//
// Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun::server {

class DeviceLedgers {
 public:
  // Makes empty memory files that no process can enlarge.
  static Result<std::shared_ptr<const DeviceLedgers>> create(std::size_t devices);

  // Opens the file of the driver's device `ordinal` for one worker. It is opened anew for each: a
  // lock of a shared open file description (F_OFD_SETLK) would outlive the worker.
  Result<UniqueFd> open(int ordinal) const;

  // Bytes of the device that its workers use, of `bytes_total`. Bytes that cannot be checked in
  // bounded time count as used.
  std::uint64_t used_bytes(int ordinal, std::uint64_t bytes_total) const;

  // The value of GPURUN_EMULATED that names a worker's files: `told` and then `descriptors`, in the
  // order of its devices.
  static std::string setting(const std::string& told, const std::vector<int>& descriptors);

 private:
  std::vector<UniqueFd> files_;
};

}  // namespace gpurun::server
