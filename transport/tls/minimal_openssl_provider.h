// A provider for OpenSSL with only the algorithms that connections with a pre-shared key use.
//
// OpenSSL makes an object of every algorithm of a kind when the first of that kind is needed. With
// this provider it makes no others, and a peer cannot choose another algorithm. The algorithms
// themselves are OpenSSL's own.
#pragma once

#include <openssl/types.h>

namespace gpurun::transport::tls {

// True only where OpenSSL is linked in, so that no other code of the process uses it. What our
// start of OpenSSL omits is omitted for every user of that OpenSSL.
#ifdef GPURUN_OPENSSL_DEFAULT_PROVIDER
inline constexpr bool kHasFewAlgorithms = true;
#else
inline constexpr bool kHasFewAlgorithms = false;
#endif

// Loads these algorithms into `context` in place of its default provider's. Returns false without
// memory, with the reason in OpenSSL's error queue, and where kHasFewAlgorithms is false.
bool load_few_algorithms(OSSL_LIB_CTX* context);

}  // namespace gpurun::transport::tls
