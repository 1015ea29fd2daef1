// Aead implementations: the two ways to compute an Aead, for aead.cc alone.
#pragma once

#include "transport/tls/aead.h"

namespace gpurun::transport::tls {

Result<std::unique_ptr<Aead>> make_openssl_aead(bool to_seal, KnownBy known_by);
// Call only where wide_registers() is true. nullptr: this build has no such implementation.
std::unique_ptr<Aead> make_wide_aead(bool to_seal);

}  // namespace gpurun::transport::tls
