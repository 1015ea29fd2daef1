// ExchangeRegistry: entries by handle. Bounds are counted anew at each put, because puts are rare.
#include "server/exchange/exchange_book.h"

#include <cstring>
#include <utility>

#include "base/random.h"
#include "protocol/limits.h"

namespace gpurun::server {
namespace {

// Messages in one call, so that one worker does not keep the daemon from others.
constexpr int kMessagesMax = 16;

}  // namespace

bool ExchangeRegistry::serve(int socket, Owner owner, const protocol::Id& lease) {
  for (int message = 0; message < kMessagesMax; ++message) {
    ExchangeMessage asked;
    std::vector<UniqueFd> given;
    const Status received = receive_words(socket, &asked, &given, Wait::kNever);
    if (received.code() == Code::kDeadline) return true;
    if (received.ok() && asked.step == ExchangeStep::kTransport) {
      if (!given.empty() || !hear(owner, asked)) return false;
      continue;
    }
    if (!received.ok() || !answer(socket, owner, lease, asked, std::move(given))) return false;
  }
  return true;
}

// False: it is not valid.
bool ExchangeRegistry::hear(Owner owner, const ExchangeMessage& asked) const {
  TransportReport report;
  if (asked.content_bytes != sizeof report) return false;
  std::memcpy(&report, asked.content.data(), sizeof report);
  if (report.connections > limits::kConnectionsMax || report.over_rdma > report.connections ||
      report.left_rdma > report.connections - report.over_rdma) {
    return false;
  }
  if (listener_) listener_(owner, report);
  return true;
}

bool ExchangeRegistry::answer(int socket, Owner owner, const protocol::Id& lease,
                              const ExchangeMessage& asked, std::vector<UniqueFd> given) {
  ExchangeMessage words;
  words.step = asked.step;
  words.handle = asked.handle;
  std::vector<int> descriptors;
  const auto found = entries_.find(asked.handle);
  const bool known = found != entries_.end() && found->second.lease == lease;
  switch (asked.step) {
    case ExchangeStep::kPut:
      words.result = put(owner, lease, asked, std::move(given), &words.handle);
      break;
    case ExchangeStep::kGet:
      if (!known) {
        words.result = ExchangeResult::kUnknown;
        break;
      }
      words.content_bytes = found->second.words.content_bytes;
      words.content = found->second.words.content;
      for (const UniqueFd& each : found->second.descriptors) descriptors.push_back(each.get());
      words.descriptors = static_cast<std::uint32_t>(descriptors.size());
      break;
    case ExchangeStep::kDrop:
      if (known && found->second.owner == owner) {
        entries_.erase(found);
      } else {
        words.result = ExchangeResult::kUnknown;
      }
      break;
    default:
      return false;
  }
  return send_words(socket, words, descriptors, Wait::kNever).ok();
}

ExchangeResult ExchangeRegistry::put(Owner owner, const protocol::Id& lease,
                                     const ExchangeMessage& asked, std::vector<UniqueFd> given,
                                     protocol::SharingHandle* handle) {
  std::size_t of_worker = 0, of_lease = 0, descriptors = 0;
  for (const auto& [name, entry] : entries_) {
    if (entry.owner == owner) ++of_worker;
    if (entry.lease == lease) of_lease += entry.descriptors.size();
    descriptors += entry.descriptors.size();
  }
  if (of_worker >= limits_.entries_of_worker ||
      of_lease + given.size() > limits_.descriptors_of_lease ||
      descriptors + given.size() > limits_.descriptors) {
    return ExchangeResult::kFull;
  }
  const auto made = random_array<protocol::SharingHandle>();
  if (!made.ok()) return ExchangeResult::kFull;
  *handle = *made;
  Entry entry;
  entry.owner = owner;
  entry.lease = lease;
  entry.words = asked;
  entry.descriptors = std::move(given);
  entries_.emplace(*handle, std::move(entry));
  return ExchangeResult::kDone;
}

void ExchangeRegistry::forget(Owner owner) {
  std::erase_if(entries_, [owner](const auto& each) { return each.second.owner == owner; });
}

}  // namespace gpurun::server
