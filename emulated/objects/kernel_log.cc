// One line per kernel, in one write.
#include "emulated/objects/kernel_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/log.h"
#include "emulated/settings.h"

namespace gpurun::emulated::kernel_log {
namespace {

// Mangled names are long. Longer lines are cut.
constexpr std::size_t kLineBytesMax = 4096;

struct Watcher {
  driver_abi::KernelRunTold told;
  void* user;
};

std::atomic<int> g_file{-1};
std::atomic<const Watcher*> g_watcher{nullptr};
thread_local std::uint64_t t_number = 0;
thread_local std::uint64_t t_running = 0;
thread_local std::uint64_t t_stream = 0;

void write_line(int file, const driver_abi::KernelRun& run) {
  char line[kLineBytesMax];
  const int length =
      std::snprintf(line, sizeof line - 1, "%d %llu %d %llu %u %llu %llu %d %u,%u,%u %u,%u,%u %s",
                    getpid(), static_cast<unsigned long long>(run.number), run.device,
                    static_cast<unsigned long long>(run.stream), run.level,
                    static_cast<unsigned long long>(run.begin_ns),
                    static_cast<unsigned long long>(run.end_ns), run.result, run.grid[0],
                    run.grid[1], run.grid[2], run.block[0], run.block[1], run.block[2], run.name);
  if (length < 0) return;
  const std::size_t end = std::min(static_cast<std::size_t>(length), sizeof line - 2);
  line[end] = '\n';
  // A failed write is ignored, because the kernel has run.
  while (::write(file, line, end + 1) < 0 && errno == EINTR) {
  }
}

}  // namespace

void open_file() {
  const std::string& path = settings().log;
  if (path.empty() || g_file.load(std::memory_order_acquire) >= 0) return;
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
  if (file < 0) {
    GPURUN_LOG(kWarning, "emulated device: no log of kernels in %s: %s", path.c_str(),
               std::strerror(errno));
    return;
  }
  int none = -1;
  if (!g_file.compare_exchange_strong(none, file, std::memory_order_acq_rel)) ::close(file);
}

void set_number(std::uint64_t number) noexcept { t_number = number; }
std::uint64_t number() noexcept { return t_number; }

void set_running_number(std::uint64_t number) noexcept { t_running = number; }
void set_running_stream(std::uint64_t stream) noexcept { t_stream = stream; }

void watch(driver_abi::KernelRunTold told, void* user) noexcept {
  // Never freed, because another thread may be calling the old one.
  g_watcher.store(told == nullptr ? nullptr : new Watcher{told, user}, std::memory_order_release);
}

bool wanted() noexcept {
  return g_file.load(std::memory_order_acquire) >= 0 ||
         g_watcher.load(std::memory_order_acquire) != nullptr;
}

std::uint64_t now() noexcept {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

void ended(driver_abi::KernelRun run) noexcept {
  run.number = t_running;
  run.stream = t_stream;
  run.end_ns = now();
  const int file = g_file.load(std::memory_order_acquire);
  if (file >= 0) write_line(file, run);
  const Watcher* const watcher = g_watcher.load(std::memory_order_acquire);
  if (watcher != nullptr) watcher->told(watcher->user, run);
}

}  // namespace gpurun::emulated::kernel_log
