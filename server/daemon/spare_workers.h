// SpareWorkers: workers that have been started before there is a lease for them, so that none waits
// for a process to start (docs/adr/0034). Each is given away once, and never comes back.
//
// They are made up for when nobody is in a hurry: some time after the last lease or session. Spare
// workers that end by themselves are replaced ever more seldom, so that a broken driver makes no
// loop of processes.
//
// One thread: the one that starts workers.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/daemon/spawn.h"

namespace gpurun::server {

enum class SpareLevel {
  kMapped,       // The driver's library is mapped: for any GPUs.
  kInitialised,  // After cuInit: for the GPUs that the next lease is expected to get.
};

struct SpareOptions {
  static constexpr std::size_t kCountMax = 64;

  std::size_t count = 0;
  SpareLevel level = SpareLevel::kMapped;
  // After a session has begun: its first calls shall have the processors.
  std::chrono::milliseconds after_session{40};
  // After a lease has begun, whose first session is about to.
  std::chrono::milliseconds after_lease{250};
  // After there was no user, process or descriptor for one.
  std::chrono::milliseconds after_shortage{5000};
  // After some have ended by themselves; doubled each time that it happens in a row.
  std::chrono::milliseconds after_failure{200};
  std::chrono::milliseconds after_failure_max{60'000};
};

class SpareWorkers {
 public:
  using Clock = std::chrono::steady_clock;
  using Devices = std::vector<int>;

  SpareWorkers(WorkerSpawner& spawner, SpareOptions options)
      : spawner_(spawner), options_(options) {}

  // One that is ready for these devices, or will soon be; null: there is none.
  std::unique_ptr<Worker> take(const Devices& devices);
  // The devices that the next lease will get, if all goes on as it does; GPU 0 at first.
  void expect(Devices devices) { expected_ = std::move(devices); }
  // There was a lease, or a session: more are started so much later.
  void lease_began() { put_off(options_.after_lease); }
  void session_began() { put_off(options_.after_session); }
  // Starts what is missing, if it is time. At most one each time.
  void refill();
  // Until refill() has something to do; -1: nothing, as it stands.
  int milliseconds_to_refill() const;

  // What poll() shall wait for, and what is to be done then.
  void watch(std::vector<pollfd>* waited) const;
  void look();

  std::size_t count() const { return spares_.size(); }
  // Ends them all, for what they hold is wanted; whether there were any.
  bool give_up();

 private:
  struct Spare {
    std::unique_ptr<Worker> worker;
    Devices devices;  // Of kInitialised.
  };

  bool wants_more() const;
  void end(std::unique_ptr<Worker> worker);
  void put_off(std::chrono::milliseconds span);
  void failed(const std::string& what);
  void start_one();
  void not_started(const Status& why);

  WorkerSpawner& spawner_;
  const SpareOptions options_;
  Devices expected_{0};
  std::vector<Spare> spares_;  // The oldest first.
  // Killed: a process with a driver takes its time, and nobody waits for it.
  std::vector<std::unique_ptr<Worker>> ending_;
  Clock::time_point due_ = Clock::now();
  // Nothing before: failures are not forgotten because a lease begins.
  Clock::time_point not_before_ = Clock::now();
  unsigned failures_ = 0;  // In a row.
};

}  // namespace gpurun::server
