// ClientHello: the first bytes of an untrusted client inside TLS. Covers the daemon's own reader
// and the name in the message.
#include "transport/tls/client_hello.h"

#include <algorithm>

#include "protocol/control/session_identity.h"
#include "protocol/limits.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpurun;
  using namespace gpurun::transport::tls;
  const ByteView record = byte_view(data, size);
  const Result<std::size_t> bytes = hello_record_bytes(record);
  const auto offer = read_key_offer(record);
  if (!bytes.ok() || *bytes != size) {
    GPURUN_FUZZ_CHECK(!offer.ok());
    return 0;
  }
  if (!offer.ok() || !*offer) return 0;
  const KeyOffer& found = **offer;
  const auto inside = [&](ByteView part) {
    return part.empty() ||
           (part.data() >= record.data() && part.data() + part.size() <= record.data() + size);
  };
  GPURUN_FUZZ_CHECK(inside(found.identity) && inside(found.binder) && inside(found.truncated));
  GPURUN_FUZZ_CHECK(found.truncated.data() + found.truncated.size() <= found.binder.data());
  GPURUN_FUZZ_CHECK(!binder_proves(found, Secret{}));
  const auto identity = protocol::decode_identity(found.identity);
  if (identity) {
    GPURUN_FUZZ_CHECK(identity->index < identity->count);
    GPURUN_FUZZ_CHECK(identity->count <= limits::kConnectionsMax);
    const Bytes again = protocol::encode_identity(*identity);
    GPURUN_FUZZ_CHECK(
        std::equal(again.begin(), again.end(), found.identity.begin(), found.identity.end()));
  }
  return 0;
}
