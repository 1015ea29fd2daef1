// Memory files, sealed so that a worker cannot keep bytes in them for those who come after it.
#include "server/daemon/device_ledgers.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <utility>

namespace gpurun::server {

Result<std::shared_ptr<const DeviceLedgers>> DeviceLedgers::create(std::size_t devices) {
  auto made = std::make_shared<DeviceLedgers>();
  for (std::size_t i = 0; i < devices; ++i) {
    UniqueFd file(memfd_create("gpurun-ledger", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file.valid()) return Status::from_errno(errno, "memfd_create");
    if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
      return Status::from_errno(errno, "F_ADD_SEALS");
    }
    made->files_.push_back(std::move(file));
  }
  return std::shared_ptr<const DeviceLedgers>(std::move(made));
}

Result<UniqueFd> DeviceLedgers::open(int ordinal) const {
  const auto place = static_cast<std::size_t>(ordinal);
  if (ordinal < 0 || place >= files_.size()) return Status(Code::kInternal, "no such device");
  const std::string path = "/proc/self/fd/" + std::to_string(files_[place].get());
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid()) return Status::from_errno(errno, path);
  return file;
}

std::string DeviceLedgers::setting(const std::string& told, const std::vector<int>& descriptors) {
  // The last word counts, whatever the daemon itself was told.
  std::string setting = told.empty() ? "ledger=" : told + ";ledger=";
  for (std::size_t i = 0; i < descriptors.size(); ++i) {
    if (i > 0) setting += '+';
    setting += std::to_string(descriptors[i]);
  }
  return setting;
}

}  // namespace gpurun::server
