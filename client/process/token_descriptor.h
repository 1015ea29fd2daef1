// Token descriptor: a descriptor of the program that carries a few bytes to any process that gets
// it (fork(2), SCM_RIGHTS, pidfd_getfd(2)). Its maker notices when the last copy is closed.
//
// It is one end of a pair of sockets, with one message in it. A reader looks at the message and
// leaves it there. The maker keeps the other end, which hangs up when no process has the first end
// open any more.
#pragma once

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun::client {

struct TokenDescriptor {
  int program = -1;  // The caller's to close. Like any descriptor of the program, it passes exec().
  UniqueFd watch;    // POLLHUP: all copies of `program` are closed. Closed by exec().
};

// `watch_min`: the lowest number of `watch`. kResourceExhausted: there are too many descriptors.
// Any thread.
Result<TokenDescriptor> make_token_descriptor(ByteView token, int watch_min);

// Copies the bytes of a token descriptor to `token`, if it has exactly so many. False: `fd` is
// closed, or is something else. Never blocks, and changes nothing. Any thread.
bool read_token_descriptor(int fd, MutableBytes token) noexcept;

}  // namespace gpurun::client
