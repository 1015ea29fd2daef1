// ObjectCache: the two facts of a kernel and its object are one entry of a CacheFolder.
#include "emulated/jit/object_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace gpurun::emulated {
namespace {

// A change of the format, also of Facts, needs another number.
constexpr std::string_view kFormat = "gpurun object 2";
constexpr std::uint64_t kObjectBytesMax = std::uint64_t{1} << 30;
// Objects have the size of a few pages. Their bytes are at the bound long before.
constexpr std::size_t kFilesMax = std::size_t{1} << 20;
// An addition computes much longer than this share of a look.
constexpr unsigned kStoredPerLook = 256;

// One byte of this file stands for each object. Its name is no entry's, so it stays in the folder.
constexpr char kTurnsFile[] = "/turns";
constexpr std::chrono::milliseconds kLook{5};

UniqueFd open_turns(const std::string& folder) {
  UniqueFd file(open((folder + kTurnsFile).c_str(),
                     O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  struct stat about {};
  if (!file.valid() || fstat(file.get(), &about) != 0) return UniqueFd();
  return S_ISREG(about.st_mode) && about.st_uid == geteuid() ? std::move(file) : UniqueFd();
}

// Changes a lock of this open file, without waiting. `bytes` 0: to the end of the file.
bool change_lock(int file, short type, off_t start, off_t bytes) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = bytes;
  return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

// The kernel ends the lock with the last descriptor of the open file.
bool lock_byte(int file, off_t byte) { return change_lock(file, F_WRLCK, byte, 1); }

struct Facts {
  std::uint32_t stack_bytes;
  std::uint32_t needs_fibers;
};

Sha256Digest key_of(std::string_view text) { return sha256(byte_view(text.data(), text.size())); }

}  // namespace

Result<std::unique_ptr<ObjectCache>> ObjectCache::open(const std::string& directory,
                                                       std::uint64_t bytes_max) {
  CacheRules rules;
  rules.bytes_max = bytes_max;
  rules.files_max = kFilesMax;
  rules.entry_bytes_max = std::min(bytes_max, kObjectBytesMax);
  rules.additions_per_look = kStoredPerLook;
  rules.others_may_read = true;
  rules.suffix = ".o";
  auto folder = CacheFolder::open(directory, rules);
  if (!folder.ok()) return folder.status();
  return std::unique_ptr<ObjectCache>(new ObjectCache(*std::move(folder)));
}

// A child that another thread has forked meanwhile shares the open file, and would keep the lock.
ObjectCache::Turn::~Turn() {
  if (lock_.valid()) change_lock(lock_.get(), F_UNLCK, 0, 0);
}

ObjectCache::Turn ObjectCache::take_turn(std::string_view key_text,
                                         std::chrono::milliseconds patience) const {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const Sha256Digest key = key_of(key_text);
  std::uint64_t byte = 0;
  std::memcpy(&byte, key.data(), sizeof byte);
  UniqueFd file = open_turns(folder_->path());
  if (!file.valid()) return Turn(UniqueFd());
  while (!lock_byte(file.get(), static_cast<off_t>(byte >> 2))) {
    if ((errno != EAGAIN && errno != EACCES) || std::chrono::steady_clock::now() >= deadline) {
      return Turn(UniqueFd());
    }
    std::this_thread::sleep_for(kLook);
  }
  return Turn(std::move(file));
}

std::optional<GeneratedCode> ObjectCache::find(std::string_view key_text) {
  const Result<Bytes> payload = folder_->find(kFormat, key_of(key_text));
  if (!payload.ok() || payload->size() < sizeof(Facts)) return std::nullopt;
  Facts facts;
  std::memcpy(&facts, payload->data(), sizeof facts);
  GeneratedCode code;
  code.stack_bytes = facts.stack_bytes;
  code.needs_fibers = facts.needs_fibers != 0;
  code.object.assign(reinterpret_cast<const char*>(payload->data()) + sizeof facts,
                     payload->size() - sizeof facts);
  return code;
}

void ObjectCache::store(std::string_view key_text, const GeneratedCode& code) {
  const Facts facts{code.stack_bytes, code.needs_fibers ? 1u : 0u};
  // Without it the kernel is compiled again.
  static_cast<void>(
      folder_->add(kFormat, key_of(key_text),
                   {bytes_of(facts), byte_view(code.object.data(), code.object.size())}));
}

}  // namespace gpurun::emulated
