// UserRegistry: counts by a scan of all admissions, because a server has few leases at a time.
#include "server/daemon/users/users.h"

#include <errno.h>
#include <sys/eventfd.h>

namespace gpurun::server {
namespace {

std::string count(std::uint64_t number, const std::string& what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

Status over(const User& user, const std::string& has, std::uint64_t allowed, const char* setting,
            Code code = Code::kRefused) {
  return Status(code, "user " + user.name + " " + has + "; this server allows " +
                          std::to_string(allowed) + " (" + setting + ")");
}

}  // namespace

UserLimits UserLimitsTable::of(const std::string& name) const {
  const auto own = by_name.find(name);
  if (own == by_name.end()) return every;
  const UserLimits& told = own->second;
  return {told.leases ? told.leases : every.leases, told.gpus ? told.gpus : every.gpus,
          told.sessions ? told.sessions : every.sessions};
}

UserAdmission::~UserAdmission() {
  const std::lock_guard lock(book_.mutex_);
  book_.admissions_.erase(this);
}

void UserAdmission::leave(std::shared_ptr<const std::atomic<bool>> returned) {
  const std::lock_guard lock(book_.mutex_);
  if (book_.admissions_.erase(this) == 0) return;
  std::erase_if(book_.leaving_, [](const auto& other) { return other.returned->load(); });
  book_.leaving_.push_back({user_, gpus_, std::move(returned)});
}

void UserAdmission::tell(const std::string& why) {
  if (!why_.empty()) return;
  why_ = why;
  eventfd_write(told_.get(), 1);
}

std::string UserAdmission::why_ended() const {
  const std::lock_guard lock(book_.mutex_);
  return why_;
}

Result<std::unique_ptr<UserAdmission>> UserRegistry::enter(const User& user, unsigned gpus) {
  UniqueFd told(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!told.valid()) return Status::from_errno(errno, "eventfd");
  std::unique_ptr<UserAdmission> admission(new UserAdmission(*this, user, gpus, std::move(told)));
  const std::lock_guard lock(mutex_);
  if (!why_closed_.empty()) return Status(Code::kRefused, why_closed_);
  if (!user.is_operator()) {
    const UserLimits limits = limits_.of(user.name);
    const Held present = admitted(user);
    const Held leaves = leaving(user);
    const std::uint64_t leases = present.leases + leaves.leases;
    const std::uint64_t held = present.gpus + leaves.gpus;
    if (limits.leases && leases >= *limits.leases) {
      return over(user, "has " + count(leases, "lease") + ", waiting requests included",
                  *limits.leases, "max-leases");
    }
    if (limits.gpus && held + gpus > *limits.gpus) {
      return over(user, "has " + count(held, "GPU") + " and wants " + std::to_string(gpus),
                  *limits.gpus, "max-gpus",
                  gpus > *limits.gpus ? Code::kInvalidArgument : Code::kRefused);
    }
  }
  admissions_.insert(admission.get());
  return admission;
}

Room UserRegistry::room(const User& user, unsigned gpus) const {
  const std::lock_guard lock(mutex_);
  if (!why_closed_.empty()) return Room::kNone;
  const UserLimits limits = limits_.of(user.name);
  const auto fits_beside = [&](const Held& held) {
    return (!limits.leases || held.leases < *limits.leases) &&
           (!limits.gpus || held.gpus + gpus <= *limits.gpus);
  };
  if (fits_beside(admitted(user))) return Room::kSoon;
  return fits_beside({}) ? Room::kIfLeasesEnd : Room::kNone;
}

UserRegistry::Held UserRegistry::admitted(const User& user) const {
  Held held;
  for (const UserAdmission* admission : admissions_) {
    if (!admission->user_.is_same(user)) continue;
    ++held.leases;
    held.gpus += admission->gpus_;
  }
  return held;
}

UserRegistry::Held UserRegistry::leaving(const User& user) const {
  Held held;
  for (const Leaving& lease : leaving_) {
    if (lease.returned->load() || !lease.user.is_same(user)) continue;
    ++held.leases;
    held.gpus += lease.gpus;
  }
  return held;
}

Status UserRegistry::admit_session(const User& user, std::size_t running) const {
  if (user.is_operator()) return {};
  const std::lock_guard lock(mutex_);
  const UserLimits limits = limits_.of(user.name);
  if (!limits.sessions || running < *limits.sessions) return {};
  return over(user, "has " + std::to_string(running) + " attached processes", *limits.sessions,
              "max-sessions");
}

void UserRegistry::end(const std::string& token, const std::string& why) {
  const std::lock_guard lock(mutex_);
  for (UserAdmission* admission : admissions_) {
    if (admission->user_.is_operator() || admission->user_.token != token) continue;
    admission->tell(why);
  }
}

void UserRegistry::close(const std::string& why) {
  const std::lock_guard lock(mutex_);
  why_closed_ = why;
  for (UserAdmission* admission : admissions_) admission->tell(why);
}

void UserRegistry::set_limits(UserLimitsTable limits) {
  const std::lock_guard lock(mutex_);
  limits_ = std::move(limits);
}

}  // namespace gpurun::server
