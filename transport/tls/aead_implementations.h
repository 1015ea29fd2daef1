// Aead implementations: the two ways to compute an Aead, for aead.cc alone.
#pragma once

#include "transport/tls/aead.h"

namespace gpurun::transport::tls {

Result<std::unique_ptr<Aead>> make_openssl_aead(bool to_seal, AuthMode auth_mode);
// Call only where has_vaes512() is true. nullptr: this build has no such implementation.
std::unique_ptr<Aead> make_wide_aead(bool to_seal);

}  // namespace gpurun::transport::tls
