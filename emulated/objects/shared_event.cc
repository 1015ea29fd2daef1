// Shared events: slots in a memory file of each process. Processes wait on them with shared
// futexes. The recording process holds a file lock that the kernel releases when the process ends.
// So no process waits for a dead one (docs/adr/0012 has the same idea).
#include "emulated/objects/shared_event.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <map>
#include <mutex>
#include <new>
#include <vector>

namespace gpurun::emulated {
namespace {

// The number of records of one event that are distinguished. Older ones count as done.
constexpr std::uint64_t kRecords = 32;
constexpr std::uint32_t kSlots = 256;
// Far beyond the file's bytes. The n-th process that has the file locks byte n of these.
constexpr off_t kLocks = off_t{1} << 40;
constexpr std::uint32_t kProcessesMax = 4096;
constexpr timespec kLookAgain = {0, 100'000'000};

struct alignas(64) Slot {
  std::atomic<std::uint64_t> begun;
  std::atomic<std::uint32_t> changed;             // Waited on.
  std::atomic<std::uint64_t> done[kRecords];      // By record % kRecords: the latest.
  std::atomic<std::uint32_t> recorder[kRecords];  // As `done`: the recording process.
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kFileBytes = (sizeof(Slot) * kSlots + kPage - 1) / kPage * kPage;

struct flock lock_on(std::uint32_t process) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = kLocks + process;
  lock.l_len = 1;
  return lock;
}

}  // namespace

class SharedEventFile {
 public:
  // nullptr: it cannot be mapped, or too many processes have it. It is never closed if `file` is
  // this process's first descriptor of the file, because a close drops its locks.
  static std::shared_ptr<SharedEventFile> map(int file) {
    void* const memory = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) return nullptr;
    auto made = std::make_shared<SharedEventFile>(file, static_cast<Slot*>(memory));
    return made->process_ == 0 ? nullptr : made;
  }

  SharedEventFile(int file, Slot* slots) : file_(file), slots_(slots) {
    for (std::uint32_t process = 1; process < kProcessesMax && process_ == 0; ++process) {
      struct flock lock = lock_on(process);
      if (fcntl(file_, F_SETLK, &lock) == 0) process_ = process;
    }
  }
  SharedEventFile(const SharedEventFile&) = delete;
  SharedEventFile& operator=(const SharedEventFile&) = delete;

  Slot& slot(std::uint32_t place) const { return slots_[place]; }
  std::uint32_t process() const { return process_; }
  int fd() const { return file_; }
  // Takes the lock again after another descriptor of the file was closed, which has dropped it.
  void lock_again() const {
    struct flock lock = lock_on(process_);
    (void)fcntl(file_, F_SETLK, &lock);
  }
  bool has_ended(std::uint32_t process) const {
    if (process == process_ || process == 0 || process >= kProcessesMax) return false;
    struct flock lock = lock_on(process);
    return fcntl(file_, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
  }

  // For this process's own file. nullptr for those of others.
  std::unique_ptr<IpcFile> own;
  std::vector<std::uint32_t> unused;          // Places. Guarded by Files::mutex.
  std::map<std::uint32_t, IpcHandle> shared;  // By place. Guarded by Files::mutex.

 private:
  const int file_;
  Slot* const slots_;
  std::uint32_t process_ = 0;
};

namespace {

struct Files {
  std::mutex mutex;
  // All below is guarded by mutex, and stays for the life of the process.
  std::vector<std::shared_ptr<SharedEventFile>> own;
  std::map<std::uint64_t, std::shared_ptr<SharedEventFile>> others;  // By inode number.
};

Files& files() {
  static auto* const all = new Files;
  return *all;
}

std::shared_ptr<SharedEventFile> make_file() {
  auto file = std::make_unique<IpcFile>();
  if (!file->create("gpurun-events", kFileBytes)) return nullptr;
  auto made = SharedEventFile::map(file->fd());
  if (made == nullptr) return nullptr;
  made->own = std::move(file);
  for (std::uint32_t place = kSlots; place > 0; --place) made->unused.push_back(place - 1);
  return made;
}

}  // namespace

std::shared_ptr<SharedEvent> SharedEvent::create() {
  Files& all = files();
  const std::lock_guard lock(all.mutex);
  if (all.own.empty() || all.own.back()->unused.empty()) {
    auto made = make_file();
    if (made == nullptr) return nullptr;
    all.own.push_back(std::move(made));
  }
  const std::shared_ptr<SharedEventFile>& file = all.own.back();
  const std::uint32_t place = file->unused.back();
  file->unused.pop_back();
  Slot& slot = file->slot(place);
  slot.begun.store(0);
  for (auto& done : slot.done) done.store(0);
  return std::shared_ptr<SharedEvent>(new SharedEvent(file, place, true));
}

std::shared_ptr<SharedEvent> SharedEvent::open(const IpcHandle& handle) {
  if (handle.kind != IpcKind::kEvent || handle.offset >= kSlots) return nullptr;
  Files& all = files();
  const std::lock_guard lock(all.mutex);
  UniqueFd file = open_ipc_file(handle);
  if (!file.valid()) return nullptr;
  std::shared_ptr<SharedEventFile>& known = all.others[handle.file];
  if (known != nullptr) {
    file.reset();
    known->lock_again();
  } else {
    struct stat about {};
    if (fstat(file.get(), &about) != 0 || static_cast<std::uint64_t>(about.st_size) < kFileBytes) {
      return nullptr;
    }
    known = SharedEventFile::map(file.get());
    if (known == nullptr) return nullptr;
    (void)file.release();
  }
  return std::shared_ptr<SharedEvent>(
      new SharedEvent(known, static_cast<std::uint32_t>(handle.offset), false));
}

SharedEvent::~SharedEvent() {
  if (!own_) return;
  Files& all = files();
  const std::lock_guard lock(all.mutex);
  const auto shared = file_->shared.find(place_);
  if (shared == file_->shared.end()) {
    file_->unused.push_back(place_);
    return;
  }
  // Other processes may have it for ever, so the place is not used again.
  file_->own->strike(shared->second);
  file_->shared.erase(shared);
}

bool SharedEvent::share(IpcHandle* handle) {
  if (!own_) return false;
  Files& all = files();
  const std::lock_guard lock(all.mutex);
  const auto known = file_->shared.find(place_);
  if (known != file_->shared.end()) {
    *handle = known->second;
    return true;
  }
  // `offset` is the place, because a file of events is mapped whole.
  if (!file_->own->enter(IpcKind::kEvent, place_, 0, 0, handle)) return false;
  file_->shared.emplace(place_, *handle);
  return true;
}

int SharedEvent::file() const { return file_->fd(); }

std::uint64_t SharedEvent::last() const { return file_->slot(place_).begun.load(); }

std::uint64_t SharedEvent::begin() {
  Slot& slot = file_->slot(place_);
  const std::uint64_t record = slot.begun.fetch_add(1) + 1;
  slot.recorder[record % kRecords].store(file_->process());
  return record;
}

bool SharedEvent::done(std::uint64_t record) const {
  return file_->slot(place_).done[record % kRecords].load() >= record;
}

void SharedEvent::complete(std::uint64_t record) {
  Slot& slot = file_->slot(place_);
  std::atomic<std::uint64_t>& done = slot.done[record % kRecords];
  std::uint64_t before = done.load();
  while (before < record && !done.compare_exchange_weak(before, record)) {
  }
  slot.changed.fetch_add(1);
  syscall(SYS_futex, &slot.changed, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SharedEvent::wait(std::uint64_t record) const {
  Slot& slot = file_->slot(place_);
  // Twice in a row, because a process that opens the file again is without its lock for a moment.
  int missed = 0;
  while (missed < 2) {
    const std::uint32_t seen = slot.changed.load();
    if (done(record)) return;
    const long woken = syscall(SYS_futex, &slot.changed, FUTEX_WAIT, seen, &kLookAgain, nullptr, 0);
    if (woken == 0 || errno != ETIMEDOUT) continue;
    missed = file_->has_ended(slot.recorder[record % kRecords].load()) ? missed + 1 : 0;
  }
}

}  // namespace gpurun::emulated
