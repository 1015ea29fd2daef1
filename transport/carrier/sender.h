// Sender: the sending half of a carried connection. It puts bytes into the carrier or sends them
// over the socket, and does what a change asks of it.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>

#include "base/deadline.h"
#include "transport/carrier/duties.h"
#include "transport/carrier/line.h"
#include "transport/carrier/socket_output.h"
#include "transport/part_cursor.h"
#include "transport/transport.h"

namespace gpurun::transport::carrier {

class Sender {
 public:
  Sender(Line& line, Duties& duties, bool by_carrier) noexcept
      : line_(line), duties_(duties), by_carrier_(by_carrier), entry_(by_carrier ? 1 : 0) {}
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  // As Connection's.
  Status send(std::span<const ByteView> parts, Deadline deadline);
  Status send_paused(std::span<const ByteView> parts, Deadline deadline, WatchPause& pause);
  Result<std::size_t> send_some(std::span<const ByteView> parts);

  // Does the duties as far as the socket has room, unless a thread sends, which then does them. Any
  // thread.
  void fulfil();
  // Waits until the bytes that leave the carrier are in the socket, and the others have arrived. No
  // other thread is in a call.
  void finish(Deadline deadline);

 private:
  // Holds mutex_. Only while no thread has a turn does kFlush say that the socket had no room.
  class Turn {
   public:
    explicit Turn(Sender& sender);
    Turn(Sender& sender, std::adopt_lock_t);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    void begin() noexcept;

    Sender& sender_;
  };

  Status send_rest(PartCursor& cursor, std::size_t parts, Deadline deadline);
  Result<std::size_t> send_some_of(PartCursor& cursor);

  // Call these in a turn.
  Status send_all(PartCursor& cursor, std::size_t parts, Deadline deadline);
  Result<std::size_t> put_some(PartCursor& cursor);
  Status wake_receiver();
  Status await_room(Deadline deadline);
  Status await_socket(Deadline deadline);
  Status send_by_socket(PartCursor& cursor, std::size_t parts, Deadline deadline);
  void do_duties();
  void make_output(unsigned duties);
  void resend();

  Line& line_;
  Duties& duties_;
  std::mutex mutex_;  // Guards all below. Held over a wait for room.
  bool by_carrier_;
  bool ended_ = false;   // The socket takes nothing more.
  bool failed_ = false;  // The carrier. The other end was asked to leave it.
  std::uint32_t entry_;
  SocketOutput output_;
};

}  // namespace gpurun::transport::carrier
