// TLS records: a peer that has completed the handshake and then seals anything. It sends any kind
// of record, with any content, changes of key, and bytes that are not sealed.
#include <algorithm>
#include <memory>
#include <utility>

#include "tests/fuzz/fuzz_target.h"
#include "transport/loopback/connection.h"
#include "transport/tls/connection.h"

namespace gpurun::transport::tls {
namespace {

Deadline soon() { return Deadline::in(std::chrono::seconds(20)); }

Channel channel() {
  Channel one;
  one.client_traffic.fill(1);
  one.server_traffic.fill(2);
  one.is_server = true;
  return one;
}

// The client's bytes for `input`. A byte for each record gives its kind and its size.
Bytes said_by(fuzz::Input& input, std::size_t* plain_bytes) {
  auto sealer = *Protection::create(channel().client_traffic, true);
  Bytes said;
  bool told = true;  // Whether all bytes so far can be opened.
  while (!input.empty()) {
    const auto way = input.number<std::uint8_t>();
    const ByteView content =
        input.take(input.number<std::uint8_t>() * std::size_t{way & 64u ? 64u : 1u});
    if (way % 16 == 15) {  // Not sealed.
      said.insert(said.end(), content.begin(), content.end());
      told = told && content.empty();
      continue;
    }
    const Content kinds[] = {Content::kApplicationData, Content::kApplicationData, Content::kAlert,
                             Content::kHandshake, static_cast<Content>(way)};
    const Content kind = kinds[(way & 15u) % 5];
    const std::size_t at = said.size();
    said.resize(at + sealed_record_bytes(content.size()));
    GPURUN_FUZZ_CHECK(sealer->seal(kind, {&content, 1}, said.data() + at).ok());
    // Whether it has announced the new key or not.
    if (way & 128u) GPURUN_FUZZ_CHECK(sealer->update().ok());
    if (told && kind == Content::kApplicationData) *plain_bytes += content.size();
  }
  return said;
}

}  // namespace
}  // namespace gpurun::transport::tls

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpurun;
  using namespace gpurun::transport;
  if (size > 8192) return 0;  // The records then fit into the pair's buffers.
  fuzz::Input input(data, size);
  tls::TlsOptions options;
  const auto shape = input.number<std::uint8_t>();
  options.reads_ahead = (shape & 1u) != 0;
  const std::size_t room =
      std::size_t{1} + input.number<std::uint8_t>() * std::size_t{shape & 2u ? 200u : 1u};
  std::size_t plain_bytes = 0;
  const Bytes said = tls::said_by(input, &plain_bytes);
  auto pair = loopback::connect_pair();
  auto connection = tls::secure(std::move(pair.second), tls::channel(), options);
  GPURUN_FUZZ_CHECK(connection.ok());
  const ByteView part(said);
  if (!said.empty()) static_cast<void>(pair.first->send({&part, 1}, tls::soon()));
  pair.first->shut_down();
  Bytes into(room);
  std::size_t heard = 0;
  for (;;) {
    const auto got =
        (*connection)->receive(into, std::min<std::size_t>(room, 1 + shape), tls::soon());
    if (!got.ok()) {
      GPURUN_FUZZ_CHECK(got.status().code() != Code::kDeadline);
      break;
    }
    GPURUN_FUZZ_CHECK(*got > 0 && *got <= room);
    heard += *got;
    // The peer may have asked for a new key.
    const Bytes answer(16);
    const ByteView words(answer);
    static_cast<void>((*connection)->send({&words, 1}, tls::soon()));
  }
  // Nothing that the peer did not seal.
  GPURUN_FUZZ_CHECK(heard <= plain_bytes);
  return 0;
}
