// LateAttach: opens further connections of an attached session, each with the same proof as the
// session's first connections.
//
// It keeps the key that tags this session's attach messages, and the pre-shared key if the session
// is encrypted. Neither key opens another session. Each connection has an index of its own. A
// failed attempt also uses up its index, because the server accepts no index twice. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "client/attach/attach_connection.h"

namespace gpurun::client {

class LateAttach {
 public:
  // `like`: one of the session's connections. The session has opened like.words.count of them.
  explicit LateAttach(const AttachConnection& like);
  LateAttach(const LateAttach&) = delete;
  LateAttach& operator=(const LateAttach&) = delete;

  struct Answered {
    OpenedConnection opened;
    unsigned cores = 0;  // The worker's.
  };
  // Opens a connection and waits for the worker's answer. `file`: as
  // AttachConnection::offered_file. kResourceExhausted: limits::kConnectionsMax were opened
  // already. Other errors as attach().
  Result<Answered> open(transport::DescriptorKeeper& keeper, int file = -1);

  // Whether the session's connections are local, so that files can be offered.
  bool is_local() const { return !like_.local.empty(); }
  int fd_min() const { return like_.fd_min; }
  bool may_change() const { return like_.may_change; }

 private:
  const AttachConnection like_;
  std::atomic<std::uint16_t> next_index_;
};

}  // namespace gpurun::client
