// ExchangeClient: a worker's side of its exchange with the daemon.
#pragma once

#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "server/exchange/exchange_message.h"
#include "server/exchange/transport_report.h"

namespace gpurun::server {

// Any thread. One request at a time. Each is answered within seconds, or the exchange is given up.
class ExchangeClient {
 public:
  explicit ExchangeClient(UniqueFd socket);
  ExchangeClient(const ExchangeClient&) = delete;
  ExchangeClient& operator=(const ExchangeClient&) = delete;

  // `descriptors` stay the caller's. False: there is no room, or no daemon.
  bool put(ByteView content, const std::vector<int>& descriptors, protocol::SharingHandle* handle);
  // False: no worker of this lease has given that, or it is gone. `content` has at most
  // kExchangeContentBytes.
  bool get(const protocol::SharingHandle& handle, Bytes* content,
           std::vector<UniqueFd>* descriptors);
  void drop(const protocol::SharingHandle& handle);
  // Never blocks. False: the report is not sent, and another attempt may succeed.
  bool report(const TransportReport& report);

 private:
  bool ask(const ExchangeMessage& question, const std::vector<int>& given, ExchangeMessage* answer,
           std::vector<UniqueFd>* descriptors);

  std::mutex mutex_;
  UniqueFd socket_;  // Guarded by mutex_. Not valid: the exchange is given up.
};

}  // namespace gpurun::server
