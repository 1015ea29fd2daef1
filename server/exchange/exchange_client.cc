// ExchangeClient: sends a request and waits for its answer.
#include "server/exchange/exchange_client.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstring>
#include <utility>

namespace gpurun::server {
namespace {

// The daemon only looks into a map, but it may be starting workers meanwhile.
constexpr timeval kPatience = {30, 0};

}  // namespace

ExchangeClient::ExchangeClient(UniqueFd socket) : socket_(std::move(socket)) {
  setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
}

bool ExchangeClient::ask(const ExchangeMessage& question, const std::vector<int>& given,
                         ExchangeMessage* answer, std::vector<UniqueFd>* descriptors) {
  const std::lock_guard lock(mutex_);
  if (!socket_.valid()) return false;
  Status status = send_words(socket_.get(), question, given, Wait::kYes);
  if (status.ok()) status = receive_words(socket_.get(), answer, descriptors, Wait::kYes);
  if (!status.ok()) {
    spdlog::warn("memory is not shared with other processes any more: {}", status.to_string());
    socket_.reset();
    return false;
  }
  return answer->result == ExchangeResult::kDone;
}

bool ExchangeClient::put(ByteView content, const std::vector<int>& descriptors,
                         protocol::SharingHandle* handle) {
  if (content.size() > kExchangeContentBytes || descriptors.size() > kExchangeDescriptorsMax) {
    return false;
  }
  ExchangeMessage question, answer;
  question.step = ExchangeStep::kPut;
  question.content_bytes = static_cast<std::uint32_t>(content.size());
  question.descriptors = static_cast<std::uint32_t>(descriptors.size());
  if (!content.empty()) std::memcpy(question.content.data(), content.data(), content.size());
  std::vector<UniqueFd> none;
  if (!ask(question, descriptors, &answer, &none)) return false;
  *handle = answer.handle;
  return true;
}

bool ExchangeClient::get(const protocol::SharingHandle& handle, Bytes* content,
                         std::vector<UniqueFd>* descriptors) {
  ExchangeMessage question, answer;
  question.step = ExchangeStep::kGet;
  question.handle = handle;
  if (!ask(question, {}, &answer, descriptors)) return false;
  const ByteView bytes = byte_view(answer.content.data(), answer.content_bytes);
  content->assign(bytes.begin(), bytes.end());
  return true;
}

void ExchangeClient::drop(const protocol::SharingHandle& handle) {
  ExchangeMessage question, answer;
  question.step = ExchangeStep::kDrop;
  question.handle = handle;
  std::vector<UniqueFd> none;
  (void)ask(question, {}, &answer, &none);
}

bool ExchangeClient::report(const TransportReport& report) {
  static_assert(sizeof report <= kExchangeContentBytes);
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !socket_.valid()) return false;
  ExchangeMessage words;
  words.step = ExchangeStep::kTransport;
  words.content_bytes = sizeof report;
  std::memcpy(words.content.data(), &report, sizeof report);
  return send_words(socket_.get(), words, {}, Wait::kNever).ok();
}

}  // namespace gpurun::server
