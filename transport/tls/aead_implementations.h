// The two ways to compute an Aead, for aead.cc alone.
#pragma once

#include "transport/tls/aead.h"

namespace gpurun::transport::tls {

Result<std::unique_ptr<Aead>> make_openssl_aead(bool to_seal, KnownBy known_by);
// Only where wide_registers(). nullptr: the build has none.
std::unique_ptr<Aead> make_wide_aead(bool to_seal);

}  // namespace gpurun::transport::tls
