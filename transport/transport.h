// Transport: moves bytes, in order and at most once, between exactly two processes.
//
// A transport knows bytes, deadlines and (later) registered memory. It knows nothing of CUDA, of
// messages, or of which end is the server. Frames are protocol/frame's business. Every
// implementation passes tests/conformance/ unchanged: a promise made here that the suite does not
// check is a bug in the suite.
//
// A session has one connection as its log channel and at least one more as bulk lane; both are
// Connections: a lane differs in what is sent over it, not in what it is.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/deadline.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun::transport {

// Fixed once connected, so that callers choose a path once and not once per message.
struct Capabilities {
  bool registers_host_memory = false;  // Bulk may bypass send(): a later contract.
  bool encrypted = false;
  bool same_host = false;  // The peer is a process of this machine.
  // Bytes pass through memory that both ends map: they cost a copy in and a copy out, and no more.
  bool shares_memory = false;
};

// Lets one thread, the watcher, sleep until a connection has something to receive, while others do
// the receiving now and then. Lives no longer than its connection.
class Watch {
 public:
  Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  virtual ~Watch() = default;

  // Returns success when receive() would not wait: bytes have come, or the end. May do so once too
  // often. While it is paused, not because of bytes, and of the end at most once. The watcher.
  //   kDeadline  neither.
  //   others     the watch is of no use any more.
  virtual Status wait(Deadline deadline) = 0;

  // From pause() to resume() somebody receives: the watcher sleeps on. What has come by then and
  // was not received wakes it after resume(). Any thread; such times may overlap.
  virtual void pause() noexcept = 0;
  virtual void resume() noexcept = 0;

  // Of its own, as Connection::fd().
  virtual int fd() const noexcept { return -1; }
};

class Connection {
 public:
  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  // The peer's blocked and later calls fail with kPeerGone. No other thread may still be inside.
  virtual ~Connection() = default;

  virtual const Capabilities& capabilities() const = 0;
  // "tcp 127.0.0.1:4090 -> 127.0.0.1:51234", for messages.
  virtual const std::string& description() const = 0;

  // Sends all of `parts`, in order. Borrows them only until it returns. Success means that the
  // bytes will arrive unless the connection dies, not that the peer has read them. One thread at a
  // time.
  //   kDeadline  nothing was sent, and the connection is still good.
  //   kPeerGone  final, as when the deadline cuts a send in half: later calls fail the same way.
  virtual Status send(std::span<const ByteView> parts, Deadline deadline) = 0;

  // Sends what of `parts` can go without waiting, and returns how many bytes: when not all, the
  // rest is what has to be sent next. 0 also where a transport cannot do so. Threads and errors as
  // send().
  virtual Result<std::size_t> send_some(std::span<const ByteView> parts) {
    (void)parts;
    return std::size_t{0};
  }

  // From now on send() waits while more than about `bytes` of what it took before have not gone out
  // yet: whoever could still say it in fewer bytes, or not at all, keeps it rather than the kernel.
  // Nothing where a transport cannot do so. Not beside send().
  virtual void bound_unsent(std::size_t bytes) noexcept { (void)bytes; }

  // Receives at least `bytes_min` and at most `into.size()` bytes; returns how many. One thread at
  // a time, which may be another than the one in send(). 0 < bytes_min <= into.size().
  //   kDeadline  fewer than bytes_min had come; what had come is kept for the next call.
  //   kPeerGone  final: the peer closed, died or reset.
  virtual Result<std::size_t> receive(MutableBytes into, std::size_t bytes_min,
                                      Deadline deadline) = 0;

  // Receives what has come, without waiting; 0: nothing has. `into` is not empty. For who looks
  // again and again: unlike a receive() that meets its deadline it makes no words for that, and
  // what is true of every look is asked at the first only. `again`: this thread has looked or sent
  // just now. Threads and other errors as receive(), but a peer's death may be found by a later one
  // of some hundred looks in a row; a receive() finds it at once.
  virtual Result<std::size_t> receive_some(MutableBytes into, bool again) {
    (void)again;
    Result<std::size_t> got = receive(into, 1, Deadline::in(std::chrono::nanoseconds(0)));
    if (!got.ok() && got.status().code() == Code::kDeadline) return std::size_t{0};
    return got;
  }

  // Makes blocked and later send() and receive() of this end fail with kPeerGone, and the peer's
  // too. Any thread, any number of times. Never blocks.
  virtual void shut_down() noexcept = 0;

  // At most one. kUnavailable: this transport has none. kResourceExhausted: no descriptor for it.
  virtual Result<std::unique_ptr<Watch>> watch() {
    return Status(Code::kUnavailable, description() + ": nothing to watch");
  }
  // The connection holds bytes that were taken from the peer and not received yet, which no watch
  // tells of: receive() gives some at once, or needs more of the peer. The receiving thread.
  virtual bool holds_received() const noexcept { return false; }

  // The descriptor to hand to another process or to poll, -1 when the transport has none.
  virtual int fd() const noexcept { return -1; }
};

class Listener {
 public:
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  virtual ~Listener() = default;

  // Waits for the next peer. kDeadline: nobody came. kResourceExhausted: no descriptor or memory
  // for it now; try again later. Others are final for the listener.
  virtual Result<std::unique_ptr<Connection>> accept(Deadline deadline) = 0;
  // Where it listens, with the port that the system chose: "127.0.0.1:43211", "[::1]:4090".
  virtual const std::string& address() const = 0;
  // Makes a blocked accept() return kPeerGone. Any thread.
  virtual void shut_down() noexcept = 0;
  virtual int fd() const noexcept { return -1; }
};

// Whose process may fork at any time, and who may give a connection up while it is being opened: is
// told of its descriptor as soon as there is one.
class DescriptorKeeper {
 public:
  DescriptorKeeper() = default;
  DescriptorKeeper(const DescriptorKeeper&) = delete;
  DescriptorKeeper& operator=(const DescriptorKeeper&) = delete;
  virtual ~DescriptorKeeper() = default;

  // From before to after, which come in pairs, no child of this process is made; so it is not for
  // long. `fd`: the connection's from now on, and the only one; -1: there is none.
  virtual void before_change() noexcept = 0;
  virtual void after_change(int fd) noexcept = 0;
  // False: nobody wants the connection any more. Who did until then has shut its descriptor down.
  virtual bool wanted() const noexcept = 0;
};

struct Options {
  // Descriptors are moved to this number or above (always close-on-exec), so that a program that
  // uses low numbers by itself does not meet ours; lower when the process's limit forbids it.
  int fd_min = 0;
  // In somebody else's process, which may close any descriptor and open something of its own under
  // its number: that is kUnavailable, and nothing is sent to, received from, shut down or closed
  // there.
  bool others_may_close = false;
  // Of a server, which waits long for many: a thread that waits wakes up less often by itself.
  bool patient = false;
  // A local socket at which anybody may have connected, who may send descriptors along: none is
  // taken, and to close one of those, or the socket with some of them unread, does not wait for
  // what their sender has arranged (SO_LINGER, socket(7)).
  bool strangers = false;
  // Of connect() alone, which it outlives: told of the connection's descriptor. Nobody, if null.
  DescriptorKeeper* keeper = nullptr;
};

// Opens `url`: tcp://HOST:PORT, or unix:NAME, a local socket without a file, which transport/shm
// makes a connection in shared memory of; later rdma://HOST:PORT. The set of schemes is the switch
// in connect.cc, not a registry: nothing registers itself before main().
//   kUnavailable      nothing listens there, no route, the name is unknown, or the keeper does not
//                     want it any more.
//   kInvalidArgument  no such scheme, or no such address.
Result<std::unique_ptr<Connection>> connect(std::string_view url, Deadline deadline,
                                            const Options& options = {});
// `url` as for connect; port 0 lets the system choose.
Result<std::unique_ptr<Listener>> listen(std::string_view url);

}  // namespace gpurun::transport
