// WorkerExitPage: one place for the server, and the others for workers. A new worker takes the
// oldest.
#include "client/session/worker_exit_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/memory_file.h"
#include "base/printable.h"
#include "client/process/shared_memory_pressure.h"

namespace gpurun::client {
namespace {

enum State : std::uint32_t { kNothing = 0, kNews = 1, kTold = 2 };

struct Place {
  std::atomic<std::uint32_t> state;
  std::uint32_t number;  // Of this announcement. Its place is reused.
  std::uint8_t session[sizeof(protocol::Id)];
  char how[104];
};
constexpr std::size_t kPlaces = 31;
constexpr std::size_t kServer = 0;

struct Page {
  std::atomic<std::uint32_t> attached;  // Not 0: a process has asked for its GPU.
  std::uint8_t unused[sizeof(Place) - sizeof attached];
  Place places[kPlaces];
};
static_assert(sizeof(Page) == SharedMemoryPressure::kOffset);
constexpr off_t kFileBytes = SharedMemoryPressure::kOffset + SharedMemoryPressure::kBytes;
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

constexpr timespec kBetweenLooks = {0, 2'000'000};

Page* page_of(WorkerExitPage* board) noexcept { return reinterpret_cast<Page*>(board); }

void announce(Place& place, std::uint32_t number, std::string_view how) noexcept {
  const std::size_t bytes = std::min(how.size(), sizeof place.how - 1);
  std::memcpy(place.how, how.data(), bytes);
  place.how[bytes] = '\0';
  place.number = number;
  place.state.store(kNews, std::memory_order_release);
}

std::string take(Place& place) {
  char how[sizeof place.how];
  std::memcpy(how, place.how, sizeof how);
  place.state.store(kTold, std::memory_order_release);
  return printable({how, strnlen(how, sizeof how)}, ' ');
}

}  // namespace

Result<UniqueFd> WorkerExitPage::create() {
  Result<UniqueFd> fd = create_memory_file("gpurun-deaths");
  if (!fd.ok()) return fd;
  if (ftruncate(fd->get(), kFileBytes) != 0) return Status::from_errno(errno, "ftruncate");
  return fd;
}

Result<UniqueFd> WorkerExitPage::create_at(int folder, const std::string& name,
                                           const std::string& path) {
  UniqueFd fd(openat(folder, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  // A page of a sparse file that finds no room is SIGBUS.
  const int error = fd.valid() ? posix_fallocate(fd.get(), 0, kFileBytes) : errno;
  if (error != 0) return Status::from_errno(error, path);
  return fd;
}

WorkerExitPage* WorkerExitPage::map(int fd) noexcept {
  struct stat about = {};
  // Beyond the file's end lies SIGBUS.
  if (fstat(fd, &about) != 0 || about.st_size != kFileBytes) return nullptr;
  void* memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<WorkerExitPage*>(memory);
}

WorkerExitPage* WorkerExitPage::open(const std::string& path) noexcept {
  if (path.empty()) return nullptr;
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  return fd.valid() ? map(fd.get()) : nullptr;
}

unsigned WorkerExitPage::worker_died(const protocol::Id& session, std::string_view how) noexcept {
  static std::uint32_t last = 0;  // gpurun has one board, and one thread that writes to it.
  const std::uint32_t number = ++last;
  Place& place = page_of(this)->places[1 + (number - 1) % (kPlaces - 1)];
  place.state.store(kNothing, std::memory_order_relaxed);
  std::memcpy(place.session, session.data(), session.size());
  announce(place, number, how);
  return number;
}

unsigned WorkerExitPage::server_ended(std::string_view how) noexcept {
  announce(page_of(this)->places[kServer], 0, how);
  return 0;
}

bool WorkerExitPage::told(unsigned number) const noexcept {
  const auto* page = reinterpret_cast<const Page*>(this);
  const Place& place = page->places[number == 0 ? kServer : 1 + (number - 1) % (kPlaces - 1)];
  return place.number != number || place.state.load(std::memory_order_acquire) == kTold;
}

void WorkerExitPage::note_attach() noexcept {
  page_of(this)->attached.store(1, std::memory_order_relaxed);
}

bool WorkerExitPage::somebody_attached() const noexcept {
  return reinterpret_cast<const Page*>(this)->attached.load(std::memory_order_relaxed) != 0;
}

std::string WorkerExitPage::ask(const protocol::Id& session,
                                std::chrono::milliseconds patience) noexcept {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (;;) {
    for (Place& place : page_of(this)->places) {
      if (place.state.load(std::memory_order_acquire) == kNothing) continue;
      const bool server = &place == &page_of(this)->places[kServer];
      if (server || std::memcmp(place.session, session.data(), session.size()) == 0) {
        return take(place);
      }
    }
    if (std::chrono::steady_clock::now() >= end) return {};
    nanosleep(&kBetweenLooks, nullptr);  // Only the end of the process waits for this.
  }
}

}  // namespace gpurun::client
