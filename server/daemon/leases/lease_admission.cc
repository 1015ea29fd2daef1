// LeaseAdmission: waits by poll(), so that the end of the link or of its user ends the wait.
#include "server/daemon/leases/lease_admission.h"

#include <errno.h>
#include <poll.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace gpurun::server {
namespace {

using protocol::Sender;

// Waits until `fd` is readable, `link` has something to receive, or `admission` (if not null) must
// end. True: `fd` is readable.
Result<bool> wait_readable(int fd, const transport::Connection& link,
                           const UserAdmission* admission, Deadline deadline) {
  const Status left(Code::kPeerGone, "the client has left the queue");
  if (link.holds_received()) return left;  // It came with the request, so no descriptor reports it.
  while (true) {
    pollfd all[] = {{fd, POLLIN, 0},
                    {link.fd(), POLLIN | POLLRDHUP, 0},
                    {admission == nullptr ? -1 : admission->fd(), POLLIN, 0}};
    const int ready = poll(all, 3, deadline.poll_timeout_ms());
    if (ready < 0 && errno != EINTR) return Status::from_errno(errno, "poll");
    if (all[1].revents != 0) return left;
    if (all[2].revents != 0) return Status(Code::kRefused, admission->why_ended());
    if (all[0].revents != 0) return true;
    if (deadline.passed()) return false;
  }
}

// The operator has no share.
std::string queue_name(const User& user) { return user.is_operator() ? std::string() : user.name; }

}  // namespace

// Waits for a change. False: there is nothing more to wait for. True: try the request again. The
// first call returns true at once, because changes are watched only from then on.
Result<bool> LeaseAdmission::wait_for(Room room, const transport::Connection& connection,
                                      const User& user, const UserAdmission* admission,
                                      LeaseWaitBudget& budget) {
  const Deadline deadline = room == Room::kSoon ? budget.follow : budget.overtaken;
  if (room == Room::kNone || deadline.passed()) return false;
  if (budget.watch == nullptr) {
    Result<std::unique_ptr<Watch>> watch = queue_.watch(queue_name(user));
    if (!watch.ok()) return false;
    budget.watch = *std::move(watch);
    return true;
  }
  GPURUN_RETURN_IF_ERROR(
      wait_readable(budget.watch->fd(), connection, admission, deadline).status());
  budget.watch->forget();
  return true;
}

// True when the GPUs would be enough if its user's leases ended.
bool LeaseAdmission::own_suffice(const protocol::LeaseRequest& request, const User& user) const {
  // In this order: a lease that ends meanwhile is then counted once or twice, and never missed.
  const std::size_t own = book_.devices_of(user);
  return queue_.lacking(request.devices) <= own;
}

Result<std::unique_ptr<UserAdmission>> LeaseAdmission::enter(
    const transport::Connection& connection, const protocol::LeaseRequest& request,
    const User& user, LeaseWaitBudget& budget) {
  while (true) {
    links_.note_ended();
    Result<std::unique_ptr<UserAdmission>> admission = users_.enter(user, request.devices);
    if (admission.ok() || admission.status().code() != Code::kRefused) return admission;
    Room room = users_.room(user, request.devices);
    // A request that asks not to wait would find no GPUs after its bound is met.
    const bool in_vain = request.wait_milliseconds == 0 && !own_suffice(request, user);
    if (room == Room::kIfLeasesEnd && in_vain) room = Room::kNone;
    const Result<bool> again = wait_for(room, connection, user, nullptr, budget);
    if (!again.ok()) return again.status();
    if (!*again) return admission;
  }
}

// For a request that waits for no active lease. Null: the GPUs are not free.
Result<std::shared_ptr<Claim>> LeaseAdmission::follow(const transport::Connection& connection,
                                                      const protocol::LeaseRequest& request,
                                                      const User& user,
                                                      const UserAdmission& admission,
                                                      LeaseWaitBudget& budget) {
  while (true) {
    links_.note_ended();
    Result<std::shared_ptr<Claim>> claim = queue_.claim_soon(request.devices, queue_name(user));
    if (!claim.ok()) return claim;
    if (*claim != nullptr) {
      budget.watch.reset();
      if ((*claim)->granted()) return claim;
      const Result<bool> granted =
          wait_readable((*claim)->fd(), connection, &admission, budget.follow);
      if (!granted.ok()) return granted.status();
      return *granted ? *std::move(claim) : nullptr;
    }
    const Room room = own_suffice(request, user) ? Room::kIfLeasesEnd : Room::kNone;
    const Result<bool> again = wait_for(room, connection, user, &admission, budget);
    if (!again.ok()) return again.status();
    if (!*again) return std::shared_ptr<Claim>();
  }
}

// The client gets its place at once, and each new place after a while.
Result<bool> LeaseAdmission::wait_in_queue(transport::Connection& connection,
                                           const protocol::LeaseRequest& request,
                                           const protocol::Key& key, const UserAdmission& admission,
                                           const Claim& claim, Deadline deadline,
                                           std::uint64_t& sent) {
  std::optional<unsigned> told;
  while (true) {
    const unsigned ahead = claim.ahead();
    if (told != ahead && !claim.granted()) {
      std::uint32_t leased = 0;
      for (const HeldLease& lease : book_.held()) {
        leased += static_cast<std::uint32_t>(lease.devices.size());
      }
      const std::uint32_t wanted = leased + request.devices;
      const std::uint32_t lacking = wanted - std::min(wanted, limits_.devices);
      GPURUN_RETURN_IF_ERROR(
          protocol::send_control(connection, protocol::Queued{ahead, lacking, limits_.devices}, key,
                                 Sender::kServer, sent++, Deadline::in(limits_.send_deadline)));
      told = ahead;
    }
    const Deadline soon = Deadline::in(limits_.place_interval);
    const bool last = deadline.poll_timeout_ms() <= soon.poll_timeout_ms();
    const Result<bool> granted =
        wait_readable(claim.fd(), connection, &admission, last ? deadline : soon);
    if (!granted.ok() || *granted || deadline.passed()) return granted;
  }
}

Result<std::shared_ptr<Claim>> LeaseAdmission::wait_for_devices(
    transport::Connection& connection, const protocol::LeaseRequest& request, const User& user,
    const protocol::Key& key, const UserAdmission& admission, LeaseWaitBudget& budget,
    std::uint64_t& sent) {
  if (request.wait_milliseconds == 0) {
    Result<std::shared_ptr<Claim>> claim = follow(connection, request, user, admission, budget);
    if (!claim.ok() || *claim != nullptr) return claim;
  } else {
    budget.watch.reset();
    Result<std::shared_ptr<Claim>> claim = queue_.claim(request.devices, queue_name(user));
    if (!claim.ok() || (*claim)->granted()) return claim;
    const Result<bool> granted =
        wait_in_queue(connection, request, key, admission, **claim, budget.queued, sent);
    if (!granted.ok()) return granted.status();
    if (*granted) return claim;
  }
  std::string why = "its GPU is not free";
  if (limits_.devices > 1) {
    const std::string all = std::to_string(limits_.devices) + " GPUs";
    why = request.devices == 1
              ? "none of its " + all + " is free"
              : "fewer than " + std::to_string(request.devices) + " of its " + all + " are free";
  }
  return Status(Code::kRefused, why + (request.wait_milliseconds > 0 ? " within the time to wait"
                                                                     : "; --timeout waits for it"));
}

}  // namespace gpurun::server
