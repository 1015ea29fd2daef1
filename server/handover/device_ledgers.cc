// DeviceLedgers: memory files, sealed so that a worker cannot keep bytes in them for later workers.
#include "server/handover/device_ledgers.h"

#include <errno.h>
#include <fcntl.h>

#include <utility>

#include "base/memory_file.h"

namespace gpurun::server {
namespace {

// Bounds the locks that are checked. A process has a few, but a malicious one could have millions.
constexpr int kQuestionsMax = 1024;

}  // namespace

Result<std::shared_ptr<const DeviceLedgers>> DeviceLedgers::create(std::size_t devices) {
  auto made = std::make_shared<DeviceLedgers>();
  for (std::size_t i = 0; i < devices; ++i) {
    Result<UniqueFd> file = create_sealable_memory_file("gpurun-ledger");
    if (!file.ok()) return file.status();
    if (fcntl(file->get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
      return Status::from_errno(errno, "F_ADD_SEALS");
    }
    made->files_.push_back(*std::move(file));
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

// The kernel returns any one lock in the range. The ranges before and behind it are checked next.
std::uint64_t DeviceLedgers::used_bytes(int ordinal, std::uint64_t bytes_total) const {
  const auto place = static_cast<std::size_t>(ordinal);
  if (ordinal < 0 || place >= files_.size() || bytes_total == 0) return 0;
  std::uint64_t free_bytes = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> unknown = {{0, bytes_total}};  // Begin, end.
  for (int questions = 0; !unknown.empty() && questions < kQuestionsMax; ++questions) {
    const auto [begin, end] = unknown.back();
    unknown.pop_back();
    struct flock other {};
    other.l_type = F_WRLCK;
    other.l_whence = SEEK_SET;
    other.l_start = static_cast<off_t>(begin);
    other.l_len = static_cast<off_t>(end - begin);
    if (fcntl(files_[place].get(), F_GETLK, &other) != 0) break;
    if (other.l_type == F_UNLCK) {
      free_bytes += end - begin;
      continue;
    }
    const auto first = static_cast<std::uint64_t>(other.l_start);
    const std::uint64_t last =  // Length 0: to the end of all files.
        other.l_len == 0 ? end : first + static_cast<std::uint64_t>(other.l_len);
    if (last < end) unknown.emplace_back(last, end);
    if (first > begin) unknown.emplace_back(begin, first);
  }
  return bytes_total - free_bytes;
}

std::string DeviceLedgers::setting(const std::string& told, const std::vector<int>& descriptors) {
  // The last word counts, whatever `told` has.
  std::string setting = told.empty() ? "ledger=" : told + ";ledger=";
  for (std::size_t i = 0; i < descriptors.size(); ++i) {
    if (i > 0) setting += '+';
    setting += std::to_string(descriptors[i]);
  }
  return setting;
}

}  // namespace gpurun::server
