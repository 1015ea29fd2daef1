// The NIC's thread: it sleeps in poll() until a socket, a post or a deadline needs it.
#include "tests/drivers/verbs/nic.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

#include "tests/drivers/verbs/completions.h"
#include "tests/drivers/verbs/queue_pair.h"
#include "tests/drivers/verbs/requester.h"
#include "tests/drivers/verbs/responder.h"

namespace gpurun::verbs_double {
namespace {

// Never destroyed, because the thread and programs use it until the process ends.
Nic** current() {
  static Nic* only = new Nic;
  return &only;
}

// In a child of fork(), which has neither the thread nor a use for the parent's objects.
void start_afresh() {
  auto* afresh = new Nic;
  afresh->of_parent = *current();
  *current() = afresh;
}

// Runs every QP, and returns when the next one needs a run without input.
Clock::time_point run_qps() {
  auto earliest = Clock::time_point::max();
  for (const auto& [number, qp] : nic().qps) {
    const auto now = Clock::now();
    run_responder(*qp);
    run_requester(*qp, now);
    earliest = std::min(earliest, requester_deadline(*qp));
  }
  return earliest;
}

void add(std::vector<pollfd>& all, int descriptor, bool reads, bool writes) {
  if (descriptor < 0 || (!reads && !writes)) return;
  all.push_back({descriptor, static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)), 0});
}

void add_sockets(std::vector<pollfd>& all, const Qp& qp) {
  add(all, qp.out.descriptor(), true, qp.out.unsent() > 0);
  // A message that waits for a receive stays in the socket. Its connection is not watched then,
  // because it would wake the thread again and again.
  add(all, qp.in.descriptor(), !qp.waiting && !qp.closing && qp.in.unsent() == 0,
      qp.in.unsent() > 0);
  add(all, qp.listener, true, false);
}

timespec time_until(Clock::time_point when) {
  const auto left = std::max(when - Clock::now(), Clock::duration::zero());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  return {static_cast<time_t>(seconds.count()), static_cast<long>((left - seconds).count())};
}

void sleep_until(const std::vector<pollfd>& watched, Clock::time_point when) {
  std::vector<pollfd> all = watched;
  const timespec left = time_until(when);
  ppoll(all.data(), all.size(), when == Clock::time_point::max() ? nullptr : &left, nullptr);
}

void run(std::uint64_t number) {
  pthread_setname_np(pthread_self(), "verbs-double");
  Lock lock(nic().mutex);
  while (nic().thread_number == number) {
    const auto when = run_qps();
    std::vector<pollfd> watched;
    add(watched, nic().waker, true, false);
    for (const auto& entry : nic().qps) add_sockets(watched, *entry.second);
    const int waker = nic().waker;
    lock.unlock();
    sleep_until(watched, when);
    std::uint64_t wakes = 0;
    [[maybe_unused]] const ssize_t got = read(waker, &wakes, sizeof(wakes));
    lock.lock();
  }
}

void change_port(std::uint8_t port, bool down) {
  for (Context* context : nic().contexts) {
    if (port > context->owner->settings.ports) continue;
    context->owner->port_down[port - 1U] = down;
    post_event(*context, down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE, port);
  }
  if (!down) return;
  for (const auto& [number, qp] : nic().qps) {
    if (qp->set.port_num == port) cut(*qp);
  }
}

}  // namespace

Nic& nic() {
  static const int registered = pthread_atfork(nullptr, nullptr, start_afresh);
  static_cast<void>(registered);
  return **current();
}

const Gid* gid_of(const Device& device, std::uint32_t index) {
  return index < device.settings.gids.size() ? &device.settings.gids[index] : nullptr;
}

bool start_nic() {
  Nic& all = nic();
  if (all.thread.joinable()) return true;
  all.waker = set_aside(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (all.waker < 0) return false;
  all.random.seed(std::random_device{}());  // A fork() has copied the state.
  sigset_t every;
  sigset_t before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);  // Signals are the program's.
  int error = 0;
  try {
    all.thread = std::thread(run, all.thread_number);
  } catch (const std::system_error& failure) {
    error = failure.code().value();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return error == 0;
}

void stop_nic(Lock& lock) {
  std::thread thread = std::move(nic().thread);
  ++nic().thread_number;
  wake_nic();
  lock.unlock();
  if (thread.joinable()) thread.join();
  lock.lock();
  if (!nic().thread.joinable() && nic().waker >= 0) close(std::exchange(nic().waker, -1));
}

void wake_nic() {
  const std::uint64_t one = 1;
  if (nic().waker < 0) return;
  [[maybe_unused]] const ssize_t written = write(nic().waker, &one, sizeof(one));
}

void run_triggered(const std::vector<Fault>& faults, Qp* qp) {
  for (const Fault& fault : faults) {
    if (fault.action == FaultAction::kPortDown || fault.action == FaultAction::kPortUp) {
      change_port(fault.port, fault.action == FaultAction::kPortDown);
    } else if (qp != nullptr && fault.action == FaultAction::kCutsQp) {
      cut(*qp);
    } else if (qp != nullptr && fault.action == FaultAction::kStopsQp) {
      qp->stopped = true;
    } else if (qp != nullptr && fault.action == FaultAction::kBreaksQp) {
      move_to_error(*qp);
      post_event(*qp->owner, IBV_EVENT_QP_FATAL, qp->qp_num);
    }
  }
  if (!faults.empty()) wake_nic();
}

}  // namespace gpurun::verbs_double
