// ExchangeBook: the daemon's side of exchanges: what workers have given, by 64 random bytes.
//
// A handle opens for workers of the lease of the worker that made it, for as long as that worker
// runs and has not dropped it. What is given is neither read nor used here; a worker that gives
// more than its bounds is told that there is no room.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "protocol/proof.h"
#include "server/exchange/exchange_words.h"

namespace gpurun::server {

struct ExchangeLimits {
  std::size_t entries_of_worker = 4096;
  std::size_t descriptors_of_lease = 1024;
  std::size_t descriptors = 4096;
};

// One thread.
class ExchangeBook {
 public:
  using Owner = const void*;  // A worker, as long as it runs.

  explicit ExchangeBook(ExchangeLimits limits = {}) : limits_(limits) {}
  ExchangeBook(const ExchangeBook&) = delete;
  ExchangeBook& operator=(const ExchangeBook&) = delete;

  // Answers what waits at the worker's end of `socket`, at most a few messages; never waits. False:
  // the worker broke the rules, or has gone, and is not to be served again.
  bool serve(int socket, Owner owner, const protocol::Id& lease);
  // The worker has ended.
  void forget(Owner owner);

  std::size_t entries() const { return entries_.size(); }

 private:
  struct Entry {
    Owner owner = nullptr;
    protocol::Id lease{};
    ExchangeWords words;
    std::vector<UniqueFd> descriptors;
  };

  bool answer(int socket, Owner owner, const protocol::Id& lease, const ExchangeWords& asked,
              std::vector<UniqueFd> given);
  ExchangeResult put(Owner owner, const protocol::Id& lease, const ExchangeWords& asked,
                     std::vector<UniqueFd> given, protocol::SharingHandle* handle);

  const ExchangeLimits limits_;
  std::map<protocol::SharingHandle, Entry> entries_;
};

}  // namespace gpurun::server
