// Transport: moves bytes, in order and at most once, between exactly two processes.
//
// A transport knows bytes, deadlines and (later) registered memory. It does not know CUDA,
// messages, or which end is the server. Frames belong to protocol/frame. Every implementation
// passes tests/conformance/ unchanged: a promise made here that the suite does not check is a bug
// in the suite.
//
// A session has one log connection and at least one bulk connection. Both are Connections: they
// differ only in what is sent over them.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/deadline.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun::transport {

// Fixed once connected, so that callers choose a path once and not for each message.
struct Capabilities {
  bool encrypted = false;
  bool same_host = false;  // The peer is a process of this machine.
  // Bytes pass through memory that both ends map. They cost one copy in and one copy out.
  bool shares_memory = false;
};

// Watch: lets one thread, the watcher, sleep until a connection has something to receive, while
// other threads receive from it now and then. The connection outlives it.
class Watch {
 public:
  Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  virtual ~Watch() = default;

  // Returns success when receive() would not wait, because bytes have come or the end. May return
  // spuriously once. During a pause it does not return because of bytes, and because of the end at
  // most once. Call from the watcher.
  //   kDeadline  nothing has come.
  //   others     the watch is of no further use.
  virtual Status wait(Deadline deadline) = 0;

  // Between pause() and resume() another thread receives and the watcher keeps sleeping. Bytes that
  // came in between and are still unreceived wake it after resume(). Any thread. Such periods may
  // overlap.
  virtual void pause() noexcept = 0;
  virtual void resume() noexcept = 0;

  // The watch's own descriptors, as Connection::fd().
  virtual int fd() const noexcept { return -1; }
  virtual int second_fd() const noexcept { return -1; }
};

// WatchPause: one pause of a watch, which ends with this object at the latest. A thread that waits
// for anything else than bytes of the connection ends it first.
class WatchPause {
 public:
  // nullptr: there is nothing to pause.
  explicit WatchPause(Watch* watch) noexcept : watch_(watch) {}
  ~WatchPause() { end(); }
  WatchPause(const WatchPause&) = delete;
  WatchPause& operator=(const WatchPause&) = delete;

  void begin() noexcept {
    if (watch_ != nullptr && !std::exchange(paused_, true)) watch_->pause();
  }
  void end() noexcept {
    if (std::exchange(paused_, false)) watch_->resume();
  }

 private:
  Watch* const watch_;
  bool paused_ = false;
};

class Connection {
 public:
  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  // The peer's blocked and later calls fail with kPeerGone. No other thread may still be in a call.
  virtual ~Connection() = default;

  virtual const Capabilities& capabilities() const = 0;
  // For messages: "tcp 127.0.0.1:4090 -> 127.0.0.1:51234".
  virtual const std::string& description() const = 0;

  // Sends all of `parts`, in order. Borrows them only until it returns. Success means that the
  // bytes will arrive unless the connection dies, not that the peer has read them. One thread at a
  // time.
  //   kDeadline  nothing was sent, and the connection still works.
  //   kPeerGone  final. Also when the deadline cuts a send in half. Later calls fail the same way.
  virtual Status send(std::span<const ByteView> parts, Deadline deadline) = 0;

  // As send(), for a thread that receives the answer. May begin the pause before the bytes go out,
  // so that the answer wakes that thread alone. Ends the pause before it waits.
  virtual Status send_paused(std::span<const ByteView> parts, Deadline deadline,
                             WatchPause& pause) {
    (void)pause;
    return send(parts, deadline);
  }

  // Sends as much of `parts` as goes without waiting, and returns how many bytes. When it does not
  // send all, the rest must be sent next. Returns 0 also when a transport cannot do this. Threads
  // and errors as send().
  virtual Result<std::size_t> send_some(std::span<const ByteView> parts) {
    (void)parts;
    return std::size_t{0};
  }

  // From now on send() waits while more than about `bytes` of earlier sends have not left this
  // machine yet. So bytes stay with the caller, which may still shorten or drop them, rather than
  // in the kernel. Has no effect when a transport cannot do this. Do not call during send().
  virtual void bound_unsent(std::size_t bytes) noexcept { (void)bytes; }

  // Receives at least `bytes_min` and at most `into.size()` bytes, and returns how many. One thread
  // at a time, which may differ from the one in send(). Requires 0 < bytes_min <= into.size().
  //   kDeadline  fewer than bytes_min had come. They are kept for the next call.
  //   kPeerGone  final: the peer closed, died or reset.
  virtual Result<std::size_t> receive(MutableBytes into, std::size_t bytes_min,
                                      Deadline deadline) = 0;

  // For polling. Receives what has come without waiting, and returns 0 when nothing has, without
  // building a kDeadline status. `into` is not empty. `again` is true when this thread has just
  // polled or sent. Then checks that hold for a whole series of polls are skipped. Threads and
  // other errors as receive(). But of some hundred polls in a row only a later one may find a
  // peer's death. A receive() finds it at once.
  virtual Result<std::size_t> receive_some(MutableBytes into, bool again) {
    (void)again;
    Result<std::size_t> got = receive(into, 1, Deadline::in(std::chrono::nanoseconds(0)));
    if (!got.ok() && got.status().code() == Code::kDeadline) return std::size_t{0};
    return got;
  }

  // Makes blocked and later send() and receive() calls of both ends fail with kPeerGone. Any
  // thread, any number of times. Never blocks.
  virtual void shut_down() noexcept = 0;

  // A connection has at most one watch. kUnavailable: this transport has none. kResourceExhausted:
  // no descriptor for it.
  virtual Result<std::unique_ptr<Watch>> watch() {
    return Status(Code::kUnavailable, description() + ": nothing to watch");
  }
  // True when the connection holds bytes that it took from the peer and no receive() has returned
  // yet. A watch does not report them. receive() returns some at once, or needs more from the peer.
  // Call from the receiving thread.
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

  // Waits for the next peer. kDeadline: no peer came. kResourceExhausted: no descriptor or memory
  // now, so try again later. Other errors are final for the listener.
  virtual Result<std::unique_ptr<Connection>> accept(Deadline deadline) = 0;
  // Where it listens, with the port that the system chose: "127.0.0.1:43211", "[::1]:4090".
  virtual const std::string& address() const = 0;
  // Makes a blocked accept() return kPeerGone. Any thread.
  virtual void shut_down() noexcept = 0;
  virtual int fd() const noexcept { return -1; }
};

// Receives the descriptor of a connection that is being opened, so that its owner can close it
// after fork() or cancel the attempt.
class DescriptorKeeper {
 public:
  DescriptorKeeper() = default;
  DescriptorKeeper(const DescriptorKeeper&) = delete;
  DescriptorKeeper& operator=(const DescriptorKeeper&) = delete;
  virtual ~DescriptorKeeper() = default;

  // No child of this process is made from before_change() until after_change(), which come in
  // pairs. So keep the time between them short. `fd` is the connection's only descriptor from now
  // on, or -1 for none.
  virtual void before_change() noexcept = 0;
  virtual void after_change(int fd) noexcept = 0;
  // False when the connection is no longer wanted. The caller that gave it up has shut its
  // descriptor down already.
  virtual bool wanted() const noexcept = 0;
};

struct Options {
  // Descriptors are moved to this number or above (always close-on-exec), to keep clear of a
  // program that uses low numbers by itself. Lower when the process's limit forbids it.
  int fd_min = 0;
  // For another program's process, which may close any descriptor and reuse its number. Calls then
  // return kUnavailable. Nothing is sent to, received from, shut down or closed under that number.
  bool others_may_close = false;
  // For a server with many waiting threads: a waiting thread wakes up less often by itself.
  bool patient = false;
  // For a local socket to which any process may connect and pass descriptors. None of them is
  // accepted. To close them, or the socket while some are unread, does not wait for a linger time
  // that their sender has set (SO_LINGER, socket(7)).
  bool strangers = false;
  // For connect() alone, and outlives it: receives the connection's descriptor. May be null.
  DescriptorKeeper* keeper = nullptr;
};

// Opens `url`: tcp://HOST:PORT, or unix:NAME, a local socket without a file that transport/shm
// turns into a connection in shared memory. Later rdma://HOST:PORT. The set of schemes is the
// switch in connect.cc, not a registry: nothing registers itself before main().
//   kUnavailable      nothing listens there, no route, the name is unknown, or the keeper no longer
//                     wants it.
//   kInvalidArgument  no such scheme, or no such address.
Result<std::unique_ptr<Connection>> connect(std::string_view url, Deadline deadline,
                                            const Options& options = {});
// `url` as for connect(). Port 0 lets the system choose.
Result<std::unique_ptr<Listener>> listen(std::string_view url);

}  // namespace gpurun::transport
