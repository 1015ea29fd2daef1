// ExchangeMessage: checks of a message that need nothing but the message.
#include "server/exchange/exchange_message.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace gpurun::server {
namespace {

// True for a memory file or a device, which a driver can use as memory. Other files are refused.
bool is_memory(const UniqueFd& file) {
  struct stat about = {};
  return fstat(file.get(), &about) == 0 && (S_ISREG(about.st_mode) || S_ISCHR(about.st_mode));
}

}  // namespace

Status send_words(int socket, const ExchangeMessage& words, const std::vector<int>& descriptors,
                  Wait wait) {
  if (words.descriptors != descriptors.size()) {
    return Status(Code::kInternal, "exchange of an impossible number of descriptors");
  }
  return send_message(socket, bytes_of(words), descriptors, wait);
}

Status receive_words(int socket, ExchangeMessage* words, std::vector<UniqueFd>* descriptors,
                     Wait wait) {
  Result<DescriptorMessage> message = receive_message(socket, sizeof *words, wait);
  if (!message.ok()) return message.status();
  const auto& [bytes, attached] = *message;
  for (const UniqueFd& each : attached) let_not_linger(each);
  if (bytes.size() == sizeof *words) std::memcpy(words, bytes.data(), sizeof *words);
  if (bytes.size() != sizeof *words || words->descriptors != attached.size() ||
      words->content_bytes > kExchangeContentBytes ||
      !std::all_of(attached.begin(), attached.end(), is_memory)) {
    return Status(Code::kProtocol, "no message of an exchange");
  }
  *descriptors = std::move(message->attached);
  return Status();
}

}  // namespace gpurun::server
