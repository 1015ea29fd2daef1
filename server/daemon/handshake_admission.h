// HandshakeAdmission: the connections of one listener that have proved nothing yet.
//
// A connection waits, as a descriptor and no more, until it has sent something. Then it takes one
// of a bounded number of places, in which a thread of the daemon's reads what it says. One source
// (peer_source.h) has a share of the places, so that others find some free. A connection that
// proves a ticket with its first bytes takes a place of another kind, which strangers cannot take
// up.
//
// Where connections wait for places, as many of the oldest in their way are shut down once these
// have had their time. What one source lets wait is bounded, too: of those that have sent nothing
// the oldest is closed, of the others a random one, so that a newcomer of a crowded source has a
// chance.
//
// The daemon's thread; leave() and count() any thread.
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
#include "server/daemon/connection_closer.h"
#include "transport/transport.h"

namespace gpurun::server {

struct AdmissionLimits {
  std::size_t places = limits::kHalfOpenMax;
  std::size_t places_of_source = limits::kHalfOpenOfSourceMax;  // Not more than `places`.
  std::size_t ticket_places = limits::kTicketHandshakesMax;
  std::chrono::milliseconds grace{limits::kHalfOpenGraceMs};
  // From when it was accepted to its proof.
  std::chrono::milliseconds deadline{limits::kHandshakeDeadlineS * 1000};
};

class HandshakeAdmission {
 public:
  // Whether the bytes that have come on a connection, which stay unread, prove a ticket.
  using ShowsTicket = std::function<bool(const transport::Connection&)>;

  // kResourceExhausted: no descriptor. `closer` must outlive it.
  static Result<std::unique_ptr<HandshakeAdmission>> create(AdmissionLimits limits,
                                                            ShowsTicket shows_ticket,
                                                            ConnectionCloser& closer);
  HandshakeAdmission(const HandshakeAdmission&) = delete;
  HandshakeAdmission& operator=(const HandshakeAdmission&) = delete;

  // Readable when look() has something to do.
  int fd() const noexcept { return epoll_.get(); }
  void add(std::unique_ptr<transport::Connection> connection, const std::string& source);
  // Notes which connections have sent something, or are gone.
  void look();

  struct Admitted {
    std::unique_ptr<transport::Connection> connection;  // Empty: none waits that has a place.
    Deadline deadline = Deadline::never();              // For its proof.
  };
  // Gives the next one its place, until leave().
  Admitted next();
  // Shuts down what is in the way of others, and closes what has waited too long. Returns the
  // milliseconds after which there may be more to do, -1 for never.
  int make_room();
  // Closes all that wait.
  void clear();

  // This connection needs its place no more. It must not have been destroyed yet.
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
    Source* source;  // Null: it has shown a ticket.
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
  // Closes some of those of one source that wait, where there are many.
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
