// Spawned worker: a stand-in for gpurun-worker. It takes the hand-over as the real one does,
// reports what it inherited, and echoes. The driver "/count-fails" does not start, and "/emulated"
// reports an emulated device. With "/dies" a signal ends the worker when a client attaches.
#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "driver_abi/row.h"
#include "protocol/control/control.h"
#include "protocol/control/rows_agreement.h"
#include "server/handover/spawn_assignment.h"
#include "server/handover/spawn_hand_over.h"
#include "transport/shm/connection.h"
#include "transport/sockets/connection.h"

extern char** environ;

namespace {

using namespace gpurun;  // This program is one page long.

// One line per environment entry and per open descriptor.
std::string inheritance(std::string_view driver) {
  std::string text = "driver " + std::string(driver) + "\n";
  for (char** entry = environ; *entry != nullptr; ++entry) text.append(*entry).append("\n");
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name[0] == '.' || name == std::to_string(dirfd(folder))) continue;
    text += "fd " + name + "\n";
  }
  closedir(folder);
  return text;
}

int serve(std::string_view driver) {
  Result<server::Assignment> assignment = server::receive_assignment(server::kHandOverFd);
  if (!assignment.ok()) return 2;
  server::obey(*assignment);
  std::string inherited = inheritance(driver);
  Result<server::HandOver> hand_over = server::receive_hand_over(server::kHandOverFd);
  if (!hand_over.ok()) return 3;
  if (hand_over->rows == protocol::rows_digest(driver_abi::rows())) inherited += "equal rows\n";
  auto log = transport::sockets::SocketConnection::adopt(std::move(hand_over->connections[0]), {});
  if (!log.ok()) return 4;
  transport::Connection& answered = **log;
  const Deadline deadline = Deadline::in(std::chrono::seconds(10));
  if (!transport::shm::share_offered(*log, deadline).ok()) return 7;
  const ByteView text = byte_view(inherited.data(), inherited.size());
  const protocol::Accept accept{"0.1.0",
                                static_cast<int>(getpid()),
                                Bytes(text.begin(), text.end()),
                                {},
                                protocol::our_features(protocol::Sender::kServer)};
  if (!protocol::send_control(answered, accept, hand_over->key, protocol::Sender::kServer, 0,
                              Deadline::in(std::chrono::seconds(10)))
           .ok()) {
    return 5;
  }
  if (driver == "/dies") raise(SIGKILL);
  while (true) {
    std::byte piece[64];
    const auto got = (*log)->receive(piece, 1, Deadline::never());  // It ends with the test.
    if (!got.ok()) return 0;
    const ByteView part(piece, *got);
    if (!(*log)->send({&part, 1}, Deadline::in(std::chrono::seconds(10))).ok()) return 6;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || std::string_view(argv[1]) != "--driver") return 2;
  if (std::find(argv, argv + argc, std::string_view("--count")) == argv + argc) {
    return serve(argv[2]);
  }
  if (std::string_view(argv[2]) == "/count-fails") return 9;
  std::printf("2\n4096 First\n8192 Second one\n");
  if (std::string_view(argv[2]) == "/emulated") std::printf("emulated\n");
  std::printf("confined \n");
  return 0;
}
