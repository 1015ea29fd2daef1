// DeviceLedgers: for each device of an emulated driver the file by which its workers share the
// device's memory (server/emulated/memory_ledger.h, docs/adr/0012). The daemon only makes the files
// and hands them on; it reads nothing of them and trusts nobody with them.
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
  // Empty files in memory that nobody can make larger.
  static Result<std::shared_ptr<const DeviceLedgers>> create(std::size_t devices);

  // The file of the driver's device `ordinal` for one worker: opened anew, because a lock of an
  // open file description (F_OFD_SETLK) would outlive a worker that shares ours.
  Result<UniqueFd> open(int ordinal) const;

  // Bytes of the device that its workers use, of `bytes_total`; what cannot be found out in bounded
  // time counts as used.
  std::uint64_t used_bytes(int ordinal, std::uint64_t bytes_total) const;

  // What tells a worker where it finds its files, behind what its GPURUN_EMULATED says otherwise:
  // `descriptors`, in the order of its devices.
  static std::string setting(const std::string& told, const std::vector<int>& descriptors);

 private:
  std::vector<UniqueFd> files_;
};

}  // namespace gpurun::server
