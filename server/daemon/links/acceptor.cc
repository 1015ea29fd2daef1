// Acceptor: the listeners, one by one, in each turn of the daemon's loop.
#include "server/daemon/links/acceptor.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

#include "server/daemon/links/peer_source.h"

namespace gpurun::server {
namespace {

// For one listener in one turn, so that other work of the daemon has its turn, too.
constexpr int kAcceptedAtOnceMax = 64;
// Connections that wait for their close. Above this number no further ones are accepted.
constexpr std::size_t kClosingMax = 1024;
// Delay after a lack of descriptors, because no event reports its end.
constexpr std::chrono::milliseconds kAcceptAgain{50};

}  // namespace

Status Acceptor::open(transport::Listener* listener, const AdmissionLimits& limits,
                      HandshakeAdmission::ShowsTicket shows_ticket) {
  auto admission = HandshakeAdmission::create(limits, std::move(shows_ticket), closer_);
  if (!admission.ok()) return admission.status();
  doors_.push_back({listener, *std::move(admission)});
  return {};
}

void Acceptor::watch(std::vector<pollfd>* waited) {
  first_ = waited->size();
  for (const Door& door : doors_) {
    waited->push_back({accepts() ? door.listener->fd() : -1, POLLIN, 0});
    waited->push_back({door.admission->fd(), POLLIN, 0});
  }
}

Status Acceptor::look(const std::vector<pollfd>& waited) {
  for (std::size_t i = 0; i < doors_.size(); ++i) {
    GPURUN_RETURN_IF_ERROR(look_at(doors_[i], waited[first_ + 2 * i].revents != 0));
  }
  return {};
}

int Acceptor::milliseconds_to_look(int most) {
  int milliseconds = most;
  for (const Door& door : doors_) {
    const int room = door.admission->make_room();
    if (room >= 0) milliseconds = std::min(milliseconds, room);
  }
  if (!accepts()) milliseconds = std::min<int>(milliseconds, kAcceptAgain.count());
  return milliseconds;
}

void Acceptor::clear() {
  for (const Door& door : doors_) door.admission->clear();
}

std::size_t Acceptor::half_open() const noexcept {
  std::size_t count = 0;
  for (const Door& door : doors_) count += door.admission->count();
  return count;
}

bool Acceptor::accepts() const {
  return closer_.backlog() < kClosingMax && std::chrono::steady_clock::now() >= accepts_from_;
}

Status Acceptor::look_at(Door& door, bool somebody_came) {
  if (somebody_came) GPURUN_RETURN_IF_ERROR(accept_all(door));
  door.admission->look();
  while (true) {
    HandshakeAdmission::Admitted admitted = door.admission->next();
    if (admitted.connection == nullptr) return {};
    threads_.start(*door.admission, std::move(admitted));
  }
}

Status Acceptor::accept_all(Door& door) {
  for (int i = 0; i < kAcceptedAtOnceMax; ++i) {
    // It was readable a moment ago, but the peer may have left since.
    Result<std::unique_ptr<transport::Connection>> accepted =
        door.listener->accept(Deadline::in(std::chrono::milliseconds(0)));
    if (!accepted.ok()) {
      if (accepted.status().code() == Code::kDeadline) return {};
      if (accepted.status().code() != Code::kResourceExhausted) return accepted.status();
      spdlog::warn("accept: {}", accepted.status().message());
      // Let present connections finish, instead of spinning on a listener that stays readable.
      accepts_from_ = std::chrono::steady_clock::now() + kAcceptAgain;
      return {};
    }
    const std::string source = source_of((*accepted)->fd());
    door.admission->add(*std::move(accepted), source);
  }
  return {};
}

}  // namespace gpurun::server
