// DeviceLedgers: for each device of an emulated driver the file by which its workers share the
// device's memory (server/emulated/memory_ledger.h, docs/adr/0012). The daemon only makes the files
// and hands them on; it reads nothing of them and trusts nobody with them.
//
// Any thread.
#pragma once

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

  // Adds to a worker's environment where it finds its `count` files: from the descriptor `first`
  // on, in the order of its devices.
  static void tell(std::vector<std::string>& environment, int first, std::size_t count);

 private:
  std::vector<UniqueFd> files_;
};

}  // namespace gpurun::server
