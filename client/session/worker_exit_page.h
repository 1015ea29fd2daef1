// WorkerExitPage: a page that gpurun shares with the processes of its program, so that each death
// is reported once, in one complete message.
//
// gpurun learns from its server how a worker died, and writes it here. The process of that worker
// finds it, adds its last call, and reports both. gpurun itself reports what no process takes.
//
// The page is the first of a memory file of gpurun's, and ends with gpurun. The
// SharedMemoryPressure is the rest. Any process of the program can write to the page. gpurun only
// believes that a death was reported. Text from the page is shown without control characters.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/auth/proof.h"

namespace gpurun::client {

// How long a process waits for news. gpurun gets them within milliseconds, if at all.
inline constexpr std::chrono::milliseconds kNewsPatience{1'000};

class WorkerExitPage {
 public:
  // gpurun's side: makes the page. Its descriptor names it to other processes (/proc/PID/fd/N).
  static Result<UniqueFd> create();
  // Makes it as a new file `name`, mode 0600, in the open folder `folder`. `path` names it in
  // messages, and to the processes that open it.
  static Result<UniqueFd> create_at(int folder, const std::string& name, const std::string& path);
  // Maps it for this process's life. The descriptor may be closed then. nullptr: it is not
  // available, and everything works without it.
  static WorkerExitPage* map(int fd) noexcept;
  static WorkerExitPage* open(const std::string& path) noexcept;

  // The worker of `session` died, or the server ended with all its workers. For gpurun's thread.
  // Returns a number for told().
  unsigned worker_died(const protocol::Id& session, std::string_view how) noexcept;
  unsigned server_ended(std::string_view how) noexcept;
  // Returns whether a process has taken the announcement, to report it.
  bool told(unsigned number) const noexcept;

  // A process of the program notes that it asks the server for its GPU. gpurun reads this at the
  // end.
  void note_attach() noexcept;
  bool somebody_attached() const noexcept;

  // For a process with connections that have ended. Returns how its worker died or how the server
  // ended, which the process then reports. Returns "" if nothing comes within `patience`. Any
  // thread.
  std::string ask(const protocol::Id& session, std::chrono::milliseconds patience) noexcept;

 private:
  WorkerExitPage() = delete;
};

}  // namespace gpurun::client
