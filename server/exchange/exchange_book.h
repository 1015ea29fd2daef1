// ExchangeRegistry: the daemon's side of exchanges: the entries that workers have given, by 64
// random bytes.
//
// A handle opens for workers of the lease of the worker that made it, while that worker runs and
// has not dropped it. The daemon neither reads nor uses the content. A worker beyond its bounds
// gets kFull.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "protocol/auth/proof.h"
#include "server/exchange/exchange_message.h"
#include "server/exchange/transport_report.h"

namespace gpurun::server {

struct ExchangeLimits {
  std::size_t entries_of_worker = 4096;
  std::size_t descriptors_of_lease = 1024;
  std::size_t descriptors = 4096;
};

// One thread.
class ExchangeRegistry {
 public:
  using Owner = const void*;  // A worker, while it runs.

  // Called during serve() with each report that a worker sends about its session's transport.
  using TransportListener = std::function<void(Owner, const TransportReport&)>;

  explicit ExchangeRegistry(ExchangeLimits limits = {}, TransportListener listener = {})
      : limits_(limits), listener_(std::move(listener)) {}
  ExchangeRegistry(const ExchangeRegistry&) = delete;
  ExchangeRegistry& operator=(const ExchangeRegistry&) = delete;

  // Answers the requests that wait at the worker's end of `socket`, at most a few messages. Never
  // blocks. False: the worker broke the rules or is gone, and must not be served again.
  bool serve(int socket, Owner owner, const protocol::Id& lease);
  // The worker has ended.
  void forget(Owner owner);

  std::size_t entries() const { return entries_.size(); }

 private:
  struct Entry {
    Owner owner = nullptr;
    protocol::Id lease{};
    ExchangeMessage words;
    std::vector<UniqueFd> descriptors;
  };

  bool answer(int socket, Owner owner, const protocol::Id& lease, const ExchangeMessage& asked,
              std::vector<UniqueFd> given);
  bool hear(Owner owner, const ExchangeMessage& asked) const;
  ExchangeResult put(Owner owner, const protocol::Id& lease, const ExchangeMessage& asked,
                     std::vector<UniqueFd> given, protocol::SharingHandle* handle);

  const ExchangeLimits limits_;
  const TransportListener listener_;
  std::map<protocol::SharingHandle, Entry> entries_;
};

}  // namespace gpurun::server
