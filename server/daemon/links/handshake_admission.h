// HandshakeAdmission: the connections of one listener that have proved nothing yet.
//
// A connection waits, as a descriptor only, until it has sent something. Then it takes one of a
// bounded number of places, in which a thread of the daemon reads its messages. One source
// (peer_source.h) has a share of the places, so that others find free ones. A connection that
// proves a ticket with its first bytes takes a place of another kind. Strangers cannot occupy
// those.
//
// When connections wait for places, as many of the oldest ones that block them are shut down after
// a grace period. The number of waiting connections of one source is bounded, too. Of those that
// have sent nothing the oldest is closed. Of the others a random one is closed, so that a newcomer
// of a crowded source has a chance.
//
// The daemon's thread. leave() and count(): any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/limits.h"
#include "server/daemon/links/connection_closer.h"
#include "transport/transport.h"

namespace gpurun::server {

struct AdmissionLimits {
  std::size_t places = limits::kHalfOpenMax;
  std::size_t places_of_source = limits::kHalfOpenOfSourceMax;  // At most `places`.
  std::size_t ticket_places = limits::kTicketHandshakesMax;
  std::chrono::milliseconds grace{limits::kHalfOpenGraceMs};
  // From its accept to its proof.
  std::chrono::milliseconds deadline{limits::kHandshakeDeadlineS * 1000};
};

class HandshakeAdmission {
 public:
  // Returns true when the bytes on a connection prove a ticket. Leaves them unread.
  using ShowsTicket = std::function<bool(const transport::Connection&)>;

  // kResourceExhausted: no descriptor. `closer` must outlive this object.
  static Result<std::unique_ptr<HandshakeAdmission>> create(AdmissionLimits limits,
                                                            ShowsTicket shows_ticket,
                                                            ConnectionCloser& closer);
  HandshakeAdmission(const HandshakeAdmission&) = delete;
  HandshakeAdmission& operator=(const HandshakeAdmission&) = delete;

  // Readable when look() has something to do.
  int fd() const noexcept { return epoll_.get(); }
  void add(std::unique_ptr<transport::Connection> connection, const std::string& source);
  // Finds the connections that have sent something, or have ended.
  void look();

  struct Admitted {
    std::unique_ptr<transport::Connection> connection;  // Empty: no waiting one has a place.
    Deadline deadline = Deadline::never();              // For its proof.
  };
  // Gives the next waiting connection its place, until leave().
  Admitted next();
  // Shuts down connections that block others, and closes those that have waited too long. Returns
  // the milliseconds until there may be more to do, or -1 for never.
  int make_room();
  // Closes all waiting connections.
  void clear();

  // This connection no longer needs its place. It must not have been destroyed yet.
  void leave(const transport::Connection* connection);
  // Connections that wait or have a place.
  std::size_t count() const noexcept { return count_.load(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Source;
  struct Waiting;
  using Queue = std::list<Waiting>;
  struct Waiting {
    std::unique_ptr<transport::Connection> connection;
    Source* source;
    Deadline deadline;
    Clock::time_point since;
    Queue::iterator self;
  };
  struct Served {
    transport::Connection* connection;
    Clock::time_point since;
    Source* source;  // Null: it has proved a ticket.
    bool evicted = false;
  };
  struct Source {
    Queue silent;  // The oldest first, as in the others.
    Queue ready;
    std::list<Served> served;

    std::size_t waiting() const { return silent.size() + ready.size(); }
  };

  HandshakeAdmission(AdmissionLimits limits, ShowsTicket shows_ticket, ConnectionCloser& closer,
                     UniqueFd epoll);
  // All of these with the mutex held.
  void watch(Waiting& one);
  void unwatch(const Waiting& one);
  void heard(Waiting& one, bool shows_ticket);
  void drop(Queue& queue, Queue::iterator one);
  // Closes some of one source's waiting connections, where there are many.
  void thin_out(Queue& queue);
  void note_drop(const transport::Connection& connection);
  void bound_all();
  Queue* next_queue();
  void drop_late(int* next_ms);
  void evict(std::vector<Served*> candidates, std::size_t wanted, int* next_ms);

  const AdmissionLimits limits_;
  const ShowsTicket shows_ticket_;
  ConnectionCloser& closer_;
  const UniqueFd epoll_;
  std::atomic<std::size_t> count_{0};
  std::mutex mutex_;
  std::map<std::string, Source> sources_;
  Queue tickets_;
  std::list<Served> served_tickets_;
  std::map<const transport::Connection*, std::list<Served>::iterator> served_;
  std::size_t waiting_ = 0;
  std::minstd_rand random_;
  Clock::time_point told_{};  // When a drop was logged last,
  std::size_t untold_ = 0;    // and how many there were since.
};

}  // namespace gpurun::server
