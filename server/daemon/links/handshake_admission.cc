// HandshakeAdmission: nothing here waits. A check of a socket is one system call, and dropped
// connections are closed on another thread.
#include "server/daemon/links/handshake_admission.h"

#include <errno.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace gpurun::server {
namespace {

constexpr int kLookedAtMax = 256;
constexpr std::chrono::seconds kTellEvery{10};

int milliseconds_until(std::chrono::steady_clock::time_point when) {
  const auto left = when - std::chrono::steady_clock::now();
  const auto whole = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<decltype(whole)>(whole, 0, 3'600'000));
}

void sooner(int* next_ms, int other) {
  if (*next_ms < 0 || other < *next_ms) *next_ms = other;
}

// True when the peer has closed without sending anything.
bool has_ended(const transport::Connection& connection) {
  std::byte first;
  const ssize_t got = recv(connection.fd(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace

Result<std::unique_ptr<HandshakeAdmission>> HandshakeAdmission::create(AdmissionLimits limits,
                                                                       ShowsTicket shows_ticket,
                                                                       ConnectionCloser& closer) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return Status::from_errno(errno, "epoll_create1");
  return std::unique_ptr<HandshakeAdmission>(
      new HandshakeAdmission(limits, std::move(shows_ticket), closer, std::move(epoll)));
}

HandshakeAdmission::HandshakeAdmission(AdmissionLimits limits, ShowsTicket shows_ticket,
                                       ConnectionCloser& closer, UniqueFd epoll)
    : limits_(limits),
      shows_ticket_(std::move(shows_ticket)),
      closer_(closer),
      epoll_(std::move(epoll)),
      random_(std::random_device{}()) {}

void HandshakeAdmission::add(std::unique_ptr<transport::Connection> connection,
                             const std::string& source) {
  const std::lock_guard lock(mutex_);
  Source& from = sources_[source];
  from.silent.push_back({std::move(connection), &from, Deadline::in(limits_.deadline), Clock::now(),
                         from.silent.end()});
  Waiting& one = from.silent.back();
  one.self = std::prev(from.silent.end());
  ++waiting_;
  ++count_;
  watch(one);
}

void HandshakeAdmission::watch(Waiting& one) {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT;
  event.data.ptr = &one;
  if (one.connection->fd() < 0 ||
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, one.connection->fd(), &event) != 0) {
    return heard(one, false);  // A thread has to wait for its first bytes.
  }
  Source& from = *one.source;
  // An honest client has sent something before so many others have come.
  if (from.silent.size() > limits::kSilentOfSourceMax) {
    note_drop(*from.silent.front().connection);
    drop(from.silent, from.silent.begin());
  }
  bound_all();
}

void HandshakeAdmission::heard(Waiting& one, bool shows_ticket) {
  unwatch(one);
  one.since = Clock::now();
  Source& from = *one.source;
  Queue& queue = shows_ticket ? tickets_ : from.ready;
  queue.splice(queue.end(), from.silent, one.self);
  if (!shows_ticket) {
    thin_out(queue);
  }
}

// Call before the descriptor is closed, because an event must not name a destroyed connection.
void HandshakeAdmission::unwatch(const Waiting& one) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, one.connection->fd(), nullptr);
}

void HandshakeAdmission::look() {
  std::array<epoll_event, kLookedAtMax> events;
  const int count = epoll_wait(epoll_.get(), events.data(), kLookedAtMax, 0);
  // No other thread drops a connection that these events name: only its own event does, and add().
  std::vector<std::pair<Waiting*, bool>> heard_now;
  for (int i = 0; i < count; ++i) {
    auto* const one = static_cast<Waiting*>(events[static_cast<std::size_t>(i)].data.ptr);
    if (has_ended(*one->connection)) {
      const std::lock_guard lock(mutex_);
      drop(one->source->silent, one->self);
    } else {
      heard_now.emplace_back(one, shows_ticket_(*one->connection));
    }
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [one, shows_ticket] : heard_now) heard(*one, shows_ticket);
}

void HandshakeAdmission::drop(Queue& queue, Queue::iterator one) {
  unwatch(*one);
  closer_.close(std::move(one->connection));
  queue.erase(one);
  --waiting_;
  --count_;
}

void HandshakeAdmission::thin_out(Queue& queue) {
  constexpr std::size_t kSoft = limits::kWaitingOfSourceSoft, kMax = limits::kWaitingOfSourceMax;
  if (queue.size() <= kSoft) return;
  std::uniform_int_distribution<std::size_t> chance(0, kMax - kSoft - 1);
  if (chance(random_) >= queue.size() - kSoft) return;
  std::uniform_int_distribution<std::size_t> which(0, queue.size() - 1);
  const auto victim = std::next(queue.begin(), static_cast<std::ptrdiff_t>(which(random_)));
  note_drop(*victim->connection);
  drop(queue, victim);
}

void HandshakeAdmission::note_drop(const transport::Connection& connection) {
  ++untold_;
  if (Clock::now() - told_ >= kTellEvery) {
    spdlog::warn("closed {} connections, of them {}, because too many of one source wait", untold_,
                 connection.description());
    told_ = Clock::now();
    untold_ = 0;
  }
}

void HandshakeAdmission::bound_all() {
  if (waiting_ <= limits::kWaitingConnectionsMax) return;
  const auto most =
      std::max_element(sources_.begin(), sources_.end(), [](const auto& one, const auto& other) {
        return one.second.waiting() < other.second.waiting();
      });
  Source& from = most->second;
  Queue& queue = from.silent.size() > 1 ? from.silent : from.ready;
  if (!queue.empty()) return drop(queue, queue.begin());
  if (!tickets_.empty()) drop(tickets_, tickets_.begin());
}

// The queue of the source with the fewest places.
HandshakeAdmission::Queue* HandshakeAdmission::next_queue() {
  if (!tickets_.empty() && served_tickets_.size() < limits_.ticket_places) return &tickets_;
  if (served_.size() - served_tickets_.size() >= limits_.places) return nullptr;
  Source* best = nullptr;
  for (auto& [name, source] : sources_) {
    if (source.ready.empty()) continue;
    if (source.served.size() >= std::min(limits_.places_of_source, limits_.places)) continue;
    const bool better = best == nullptr || source.served.size() < best->served.size() ||
                        (source.served.size() == best->served.size() &&
                         source.ready.front().since < best->ready.front().since);
    if (better) best = &source;
  }
  return best == nullptr ? nullptr : &best->ready;
}

HandshakeAdmission::Admitted HandshakeAdmission::next() {
  const std::lock_guard lock(mutex_);
  Queue* const queue = next_queue();
  if (queue == nullptr) return {};
  // When more wait than will be served soon, the newest has the most time left.
  const bool crowded = queue != &tickets_ && queue->size() > limits_.places_of_source;
  const auto one = crowded ? std::prev(queue->end()) : queue->begin();
  Source* const source = queue == &tickets_ ? nullptr : one->source;
  std::list<Served>& places = source == nullptr ? served_tickets_ : source->served;
  places.push_back({one->connection.get(), Clock::now(), source});
  served_.emplace(one->connection.get(), std::prev(places.end()));
  Admitted admitted{std::move(one->connection), one->deadline};
  queue->erase(one);
  --waiting_;
  return admitted;
}

void HandshakeAdmission::leave(const transport::Connection* connection) {
  const std::lock_guard lock(mutex_);
  const auto found = served_.find(connection);
  if (found == served_.end()) return;
  Source* const source = found->second->source;
  (source == nullptr ? served_tickets_ : source->served).erase(found->second);
  served_.erase(found);
  --count_;
}

void HandshakeAdmission::drop_late(int* next_ms) {
  const auto late = [&](Queue& queue) {
    for (auto one = queue.begin(); one != queue.end();) {
      const auto other = one++;
      if (other->deadline.passed()) {
        drop(queue, other);
      } else {
        sooner(next_ms, other->deadline.poll_timeout_ms());
        if (&queue != &tickets_ && &queue == &other->source->silent)
          break;  // All later ones end
                  // later.
      }
    }
  };
  late(tickets_);
  for (auto& [name, source] : sources_) {
    late(source.silent);
    late(source.ready);
  }
}

// Shuts down the oldest of `candidates`, up to `wanted`. Those that were shut down before count.
void HandshakeAdmission::evict(std::vector<Served*> candidates, std::size_t wanted, int* next_ms) {
  std::sort(candidates.begin(), candidates.end(), [](const Served* one, const Served* other) {
    return one->evicted != other->evicted ? one->evicted : one->since < other->since;
  });
  if (candidates.size() > wanted) candidates.resize(wanted);
  for (Served* one : candidates) {
    if (one->evicted) continue;
    const auto due = one->since + limits_.grace;
    if (due > Clock::now()) return sooner(next_ms, std::max(milliseconds_until(due), 1));
    spdlog::info("{}: makes room for another", one->connection->description());
    one->evicted = true;
    one->connection->shut_down();
  }
}

int HandshakeAdmission::make_room() {
  const std::lock_guard lock(mutex_);
  int next_ms = -1;
  drop_late(&next_ms);
  std::erase_if(sources_, [](const auto& item) {
    return item.second.waiting() == 0 && item.second.served.empty();
  });
  std::size_t kept_out = 0;
  std::vector<Served*> all;
  for (auto& [name, source] : sources_) {
    std::vector<Served*> own;
    for (Served& one : source.served) own.push_back(&one);
    all.insert(all.end(), own.begin(), own.end());
    if (own.size() < std::min(limits_.places_of_source, limits_.places)) {
      kept_out += source.ready.size();
    } else {
      evict(std::move(own), source.ready.size(), &next_ms);
    }
  }
  // If places were free, next() has given them out already.
  if (all.size() >= limits_.places) evict(std::move(all), kept_out, &next_ms);
  return next_ms;
}

void HandshakeAdmission::clear() {
  const std::lock_guard lock(mutex_);
  const auto drop_all = [this](Queue& queue) {
    while (!queue.empty()) drop(queue, queue.begin());
  };
  drop_all(tickets_);
  for (auto& [name, source] : sources_) {
    drop_all(source.silent);
    drop_all(source.ready);
  }
}

}  // namespace gpurun::server
