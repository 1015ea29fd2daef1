// wait_at_all(): one thread for each server. Their shared state outlives the call. A thread that is
// still connecting when another server has granted is not joined: it finds the race over and ends.
#include "tools/gpurun/lease_race.h"

#include <sys/socket.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "client/process/thread.h"

namespace gpurun::tools {
namespace {

enum class Voice : std::uint8_t { kSay, kWarn, kSecurity };

struct Line {
  Voice voice;
  std::string text;
};

struct Race {
  std::mutex mutex;  // Guards all below.
  std::condition_variable changed;
  bool over = false;
  std::vector<Line> lines;
  std::vector<client::ControlLink*> links;  // Of waiting requests, else nullptr.
  std::size_t running = 0;
  std::optional<HeldLease> won;
  Status failure;
  std::string failures;

  void add_line(Voice voice, const std::string& text) {
    const std::lock_guard lock(mutex);
    lines.push_back({voice, text});
    changed.notify_one();
  }
};

struct Runner {
  std::shared_ptr<Race> race;
  std::size_t number;
  std::string server;
  LeaseOrder order;
};

// Null: the race is over, or the server failed.
std::unique_ptr<client::ControlLink> join_race(const Runner& runner, Status* failure) {
  auto link = connect_to_server(runner.server, runner.order.credential, runner.order.security,
                                runner.order.warn);
  if (!link.ok()) {
    *failure = link.status();
    return nullptr;
  }
  const std::lock_guard lock(runner.race->mutex);
  if (runner.race->over) return nullptr;
  runner.race->links[runner.number] = link->get();
  return *std::move(link);
}

void run(const Runner& runner) {
  Race& race = *runner.race;
  Status failure;
  std::unique_ptr<client::ControlLink> link = join_race(runner, &failure);
  std::optional<client::SessionData> session;
  if (link != nullptr) {
    Result<client::SessionData> granted = link->request_lease(
        lease_request(runner.server, runner.order, runner.order.wait, runner.order.say));
    if (granted.ok()) session = *std::move(granted);
    if (!session) failure = advised(granted.status(), runner.server, runner.order.credential);
  }
  // The lock is released before a link that has not won is closed.
  const std::lock_guard lock(race.mutex);
  race.links[runner.number] = nullptr;
  --race.running;
  if (session && !race.over) {
    race.over = true;
    race.won = HeldLease{std::move(link), *std::move(session)};
  } else if (!race.over) {
    race.failure = failure;
    race.failures += (race.failures.empty() ? "" : "; ") + failure.message();
    if (race.running > 0) race.lines.push_back({Voice::kWarn, "skipped: " + failure.message()});
  }
  race.changed.notify_one();
}

void* run_thread(void* argument) {
  const std::unique_ptr<Runner> runner(static_cast<Runner*>(argument));
  run(*runner);
  return nullptr;
}

void start_runner(const std::shared_ptr<Race>& race, std::size_t number, const LeaseOrder& order) {
  auto runner = std::make_unique<Runner>(Runner{race, number, order.servers[number], order});
  // The caller's functions may be gone when a thread that was not joined reports something.
  runner->order.say = [race](const std::string& text) { race->add_line(Voice::kSay, text); };
  runner->order.warn = [race](const std::string& text) { race->add_line(Voice::kWarn, text); };
  if (order.security.say) {
    runner->order.security.say = [race](const std::string& text) {
      race->add_line(Voice::kSecurity, text);
    };
  }
  client::Thread thread;
  const Status started = thread.start("lease-wait", run_thread, runner.get());
  if (started.ok()) {
    static_cast<void>(runner.release());
    return thread.leave_alone();
  }
  const std::lock_guard lock(race->mutex);
  --race->running;
  race->failure = started;
  race->failures += (race->failures.empty() ? "" : "; ") + started.message();
}

void say_lines(const LeaseOrder& order, std::unique_lock<std::mutex>& lock, Race& race) {
  const std::vector<Line> lines = std::exchange(race.lines, {});
  lock.unlock();
  for (const Line& line : lines) {
    const auto& voice = line.voice == Voice::kSay    ? order.say
                        : line.voice == Voice::kWarn ? order.warn
                                                     : order.security.say;
    voice(line.text);
  }
  lock.lock();
}

}  // namespace

Result<HeldLease> wait_at_all(const LeaseOrder& order) {
  const auto race = std::make_shared<Race>();
  race->links.resize(order.servers.size());
  race->running = order.servers.size();
  for (std::size_t number = 0; number < order.servers.size(); ++number) {
    start_runner(race, number, order);
  }
  std::unique_lock lock(race->mutex);
  while (true) {
    race->changed.wait(
        lock, [&] { return !race->lines.empty() || race->won.has_value() || race->running == 0; });
    say_lines(order, lock, *race);
    if (race->won || (race->running == 0 && race->lines.empty())) break;
  }
  race->over = true;
  // Wakes the threads that wait for an answer. Their servers then see the end of their requests.
  for (client::ControlLink* link : race->links) {
    if (link != nullptr) shutdown(link->fd(), SHUT_RDWR);
  }
  if (race->won) return *std::exchange(race->won, std::nullopt);
  return Status(race->failure.code(), race->failures);
}

}  // namespace gpurun::tools
