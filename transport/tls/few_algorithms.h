// A provider for OpenSSL with the few algorithms that connections proved by a key use.
//
// OpenSSL makes an object of each algorithm that its providers have of a kind, when the first of
// that kind is wanted: of 124 ciphers for the one that we use. Here are no others to be made, and
// none that a peer could talk us into. The algorithms themselves are OpenSSL's own.
#pragma once

#include <openssl/types.h>

namespace gpurun::transport::tls {

// Where OpenSSL is linked in, and so is nobody else's: what its first start leaves away, it leaves
// away for all who use it.
#ifdef GPURUN_OPENSSL_DEFAULT_PROVIDER
inline constexpr bool kHasFewAlgorithms = true;
#else
inline constexpr bool kHasFewAlgorithms = false;
#endif

// True once `context` has them, instead of its default provider's. False, with the reason in
// OpenSSL's queue, when memory lacks, and where there are none.
bool load_few_algorithms(OSSL_LIB_CTX* context);

}  // namespace gpurun::transport::tls
