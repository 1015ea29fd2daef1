// Counting is by looking at all: a server has few leases at a time.
#include "server/daemon/users.h"

#include <errno.h>
#include <sys/eventfd.h>

namespace gpurun::server {
namespace {

std::string count(std::uint64_t number, const std::string& what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

Status over(const User& user, const std::string& has, std::uint64_t allowed, const char* setting) {
  return Status(Code::kRefused, "user " + user.name + " " + has + "; this server allows " +
                                    std::to_string(allowed) + " (" + setting + ")");
}

}  // namespace

std::string User::described() const {
  return is_operator() ? name : name + " (token " + token + ")";
}

UserLimits UserLimitsTable::of(const std::string& name) const {
  const auto own = by_name.find(name);
  if (own == by_name.end()) return every;
  const UserLimits& told = own->second;
  return {told.leases ? told.leases : every.leases, told.gpus ? told.gpus : every.gpus,
          told.sessions ? told.sessions : every.sessions};
}

UserBook::Stay::~Stay() { leave(); }

void UserBook::Stay::leave() {
  const std::lock_guard lock(book_.mutex_);
  book_.stays_.erase(this);
}

std::string UserBook::Stay::why_ended() const {
  const std::lock_guard lock(book_.mutex_);
  return why_;
}

Result<std::unique_ptr<UserBook::Stay>> UserBook::enter(const User& user, unsigned gpus) {
  UniqueFd told(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!told.valid()) return Status::from_errno(errno, "eventfd");
  std::unique_ptr<Stay> stay(new Stay(*this, user, gpus, std::move(told)));
  const std::lock_guard lock(mutex_);
  if (!user.is_operator()) {
    const UserLimits limits = limits_.of(user.name);
    std::uint64_t leases = 0;
    std::uint64_t held = 0;
    for (const Stay* other : stays_) {
      if (other->user_.is_operator() || other->user_.name != user.name) continue;
      ++leases;
      held += other->gpus_;
    }
    if (limits.leases && leases >= *limits.leases) {
      return over(user, "has " + count(leases, "lease") + ", waiting requests included",
                  *limits.leases, "max-leases");
    }
    if (limits.gpus && held + gpus > *limits.gpus) {
      return over(user, "has " + count(held, "GPU") + " and wants " + std::to_string(gpus),
                  *limits.gpus, "max-gpus");
    }
  }
  stays_.insert(stay.get());
  return stay;
}

Status UserBook::admit_session(const User& user, std::size_t running) const {
  if (user.is_operator()) return {};
  const UserLimits limits = limits_.of(user.name);
  if (!limits.sessions || running < *limits.sessions) return {};
  return over(user, "has " + std::to_string(running) + " attached processes", *limits.sessions,
              "max-sessions");
}

void UserBook::end(const std::string& token, const std::string& why) {
  const std::lock_guard lock(mutex_);
  for (Stay* stay : stays_) {
    if (stay->user_.is_operator() || stay->user_.token != token || !stay->why_.empty()) continue;
    stay->why_ = why;
    eventfd_write(stay->told_.get(), 1);
  }
}

}  // namespace gpurun::server
