// DeathBoard: a page that gpurun shares with the processes of its program, so that one death is
// told once, by one message that says all: gpurun hears of its server how a worker died and puts it
// here; the process whose worker it was finds it, adds its last call, and says it. What nobody
// takes from here gpurun says itself.
//
// The page is the first of a memory file of gpurun's, gone with it (the rest is the MemoryBoard).
// Any process of the program can write to it: gpurun believes of it only that something was told,
// and its words are shown without control characters.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/proof.h"

namespace gpurun::client {

// How long a process waits for what gpurun is told within milliseconds, if it is told.
inline constexpr std::chrono::milliseconds kNewsPatience{1'000};

class DeathBoard {
 public:
  // gpurun's side: makes the page. Its descriptor names it to others (/proc/PID/fd/N).
  static Result<UniqueFd> create();
  // Maps it for this process's life; the descriptor may be closed then. nullptr: it cannot be had,
  // and everything works without.
  static DeathBoard* map(int fd) noexcept;
  static DeathBoard* open(const std::string& path) noexcept;

  // The worker of `session` died; the server itself ended, with all workers. gpurun's thread. The
  // number is asked about by told().
  unsigned worker_died(const protocol::Id& session, std::string_view how) noexcept;
  unsigned server_ended(std::string_view how) noexcept;
  // Some process has taken it, to say it.
  bool told(unsigned number) const noexcept;

  // A process of the program notes that it asks the server for its GPU; gpurun asks at the end.
  void note_attach() noexcept;
  bool somebody_attached() const noexcept;

  // A process whose connections have ended asks why, and says what it gets: how its worker died, or
  // how the server ended; "" if nothing comes within `patience`. Any thread.
  std::string ask(const protocol::Id& session, std::chrono::milliseconds patience) noexcept;

 private:
  DeathBoard() = delete;
};

}  // namespace gpurun::client
