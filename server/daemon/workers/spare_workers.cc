// SpareWorkers: an untaken spare has served no client. One with a lease belongs to the daemon, and
// ends with that lease.
#include "server/daemon/workers/spare_workers.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace gpurun::server {
namespace {

bool has_ended(const Worker& worker) {
  pollfd ended = {worker.exit_fd(), POLLIN, 0};
  return poll(&ended, 1, 0) > 0;
}

constexpr unsigned kDoublingsMax = 20;

}  // namespace

std::unique_ptr<Worker> SpareWorkers::take(const Devices& devices) {
  look();
  const bool initialised = options_.level == SpareLevel::kInitialised;
  for (auto spare = spares_.begin(); spare != spares_.end();) {
    if (initialised && spare->devices != devices) {
      ++spare;
      continue;
    }
    std::unique_ptr<Worker> worker = std::move(spare->worker);
    spare = spares_.erase(spare);
    const Status told = initialised ? Status() : worker->assign(devices, true);
    if (told.ok()) {
      failures_ = 0;
      return worker;
    }
    spdlog::info("a spare worker cannot be used: {}", told.to_string());
    end(std::move(worker));
  }
  return nullptr;
}

bool SpareWorkers::wants_more() const {
  if (spares_.size() < options_.count) return true;
  if (options_.count == 0 || options_.level != SpareLevel::kInitialised) return false;
  return std::none_of(spares_.begin(), spares_.end(),
                      [this](const Spare& spare) { return spare.devices == expected_; });
}

void SpareWorkers::put_off(std::chrono::milliseconds span) { due_ = Clock::now() + span; }

void SpareWorkers::refill() {
  if (Clock::now() < std::max(due_, not_before_) || !wants_more()) return;
  start_one();
  // Start the next one after this one has had the processors for a while.
  put_off(options_.after_session);
}

void SpareWorkers::start_one() {
  // The oldest spare, which has GPUs that are no longer expected, makes room.
  if (spares_.size() >= options_.count) {
    end(std::move(spares_.front().worker));
    spares_.erase(spares_.begin());
  }
  Result<std::unique_ptr<Worker>> worker = spawner_.spare();
  if (!worker.ok()) return not_started(worker.status());
  Spare spare{*std::move(worker), {}};
  if (options_.level == SpareLevel::kInitialised) {
    spare.devices = expected_;
    if (const Status told = spare.worker->assign(spare.devices, false); !told.ok()) {
      end(std::move(spare.worker));
      return failed("a spare worker ended: " + told.to_string());
    }
  }
  spares_.push_back(std::move(spare));
}

// Leases have priority: a shortage of resources is not the driver's failure.
void SpareWorkers::not_started(const Status& why) {
  const std::string what = "a spare worker could not be started: " + why.to_string();
  if (why.code() != Code::kResourceExhausted) return failed(what);
  not_before_ = Clock::now() + options_.after_shortage;
  spdlog::info("{}; the next try is in {} ms at the earliest", what,
               options_.after_shortage.count());
}

void SpareWorkers::end(std::unique_ptr<Worker> worker) {
  worker->kill();
  ending_.push_back(std::move(worker));
}

void SpareWorkers::failed(const std::string& what) {
  const auto span = std::min(options_.after_failure * (1u << std::min(failures_, kDoublingsMax)),
                             options_.after_failure_max);
  ++failures_;
  not_before_ = Clock::now() + span;
  spdlog::warn("{}; the next one starts in {} ms at the earliest", what, span.count());
}

int SpareWorkers::milliseconds_to_refill() const {
  if (!wants_more()) return -1;
  const auto left = std::max(due_, not_before_) - Clock::now();
  const auto whole = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::max<decltype(whole)>(whole, 0));
}

void SpareWorkers::watch(std::vector<pollfd>* waited) const {
  for (const Spare& spare : spares_) {
    waited->push_back({spare.worker->exit_fd(), POLLIN, 0});
    waited->push_back({spare.worker->log_fd(), POLLIN, 0});
  }
  for (const auto& worker : ending_) waited->push_back({worker->exit_fd(), POLLIN, 0});
}

void SpareWorkers::look() {
  std::erase_if(ending_, [](const auto& worker) { return has_ended(*worker); });
  std::size_t ended = 0;
  std::string last;
  for (auto spare = spares_.begin(); spare != spares_.end();) {
    spare->worker->relay_log();
    if (!has_ended(*spare->worker)) {
      ++spare;
      continue;
    }
    ++ended;
    last = spare->worker->how_it_failed();
    spare = spares_.erase(spare);
  }
  if (ended == 0) return;
  // Several that end at once have one cause.
  failed((ended == 1 ? "a spare worker" : std::to_string(ended) + " spare workers") +
         " ended: " + (last.empty() ? "by itself" : last));
}

bool SpareWorkers::give_up() {
  const bool any = !spares_.empty() || !ending_.empty();
  for (const Spare& spare : spares_) spare.worker->kill();
  // Waits for each, because what they hold is free only when they have ended. All die at once.
  spares_.clear();
  ending_.clear();
  return any;
}

}  // namespace gpurun::server
