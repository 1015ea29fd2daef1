// A provider for OpenSSL: the default provider's own start with our answers to two questions. They
// are which algorithms it has, and which groups for a Diffie-Hellman exchange.
#include "transport/tls/minimal_openssl_provider.h"

#include <openssl/core.h>
#include <openssl/core_dispatch.h>
#include <openssl/core_names.h>
#include <openssl/params.h>
#include <openssl/provider.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <span>
#include <string_view>

#ifdef GPURUN_OPENSSL_DEFAULT_PROVIDER

// Defined in the archive, but declared in no installed header. Declared here as in all versions of
// OpenSSL that have providers. The build's configuration has checked that it is there.
extern "C" OSSL_provider_init_fn ossl_default_provider_init;

namespace gpurun::transport::tls {
namespace {

constexpr const char* kName = "few";
constexpr std::string_view kGroup = "x25519";

// The algorithms that this provider has of one kind, each by the first of its names.
struct Kind {
  int operation;
  std::array<std::string_view, 3> names;
};
// A ClientHello names signatures, though none is made here. EC and ECDSA are for that.
constexpr Kind kKinds[] = {
    {OSSL_OP_DIGEST, {"SHA2-256"}},
    // The record's cipher, and those of the random number generator.
    {OSSL_OP_CIPHER, {"AES-128-GCM", "AES-256-CTR", "AES-256-ECB"}},
    {OSSL_OP_MAC, {"HMAC"}},
    {OSSL_OP_KDF, {"HKDF", "TLS13-KDF"}},
    {OSSL_OP_RAND, {"CTR-DRBG"}},
    {OSSL_OP_KEYMGMT, {"X25519", "HMAC", "EC"}},
    {OSSL_OP_KEYEXCH, {"X25519"}},
    {OSSL_OP_SIGNATURE, {"HMAC", "ECDSA"}},
};
// Has an end marker.
using Algorithms = std::array<OSSL_ALGORITHM, std::size(kKinds[0].names) + 1>;

// Shared by all contexts, because the default provider's answers do not depend on one. Filled once,
// and read-only afterwards.
struct Answers {
  std::array<Algorithms, std::size(kKinds)> algorithms{};
  std::array<OSSL_DISPATCH, 16> functions{};
  OSSL_FUNC_provider_query_operation_fn* all = nullptr;
  OSSL_FUNC_provider_get_capabilities_fn* capabilities = nullptr;
  bool whole = false;
};
Answers& answers() {
  static Answers only;
  return only;
}

const OSSL_ALGORITHM* query(void*, int operation, int* no_cache) {
  *no_cache = 0;
  for (std::size_t kind = 0; kind < std::size(kKinds); ++kind) {
    if (kKinds[kind].operation == operation) return answers().algorithms[kind].data();
  }
  return nullptr;
}

struct Asked {
  OSSL_CALLBACK* tell;
  void* argument;
};

int tell_group(const OSSL_PARAM* group, void* argument) {
  const auto* asked = static_cast<const Asked*>(argument);
  const char* name = nullptr;
  const OSSL_PARAM* named = OSSL_PARAM_locate_const(group, OSSL_CAPABILITY_TLS_GROUP_NAME);
  if (named == nullptr || OSSL_PARAM_get_utf8_string_ptr(named, &name) != 1 || name != kGroup) {
    return 1;  // Go on with the next one.
  }
  return asked->tell(group, asked->argument);
}

// For groups. Later versions also ask for signatures. These have no such name, so they are left
// out.
int tell_capabilities(void* provider, const char* capability, OSSL_CALLBACK* tell, void* argument) {
  Asked asked{tell, argument};
  return answers().capabilities(provider, capability, &tell_group, &asked);
}

void keep(const Kind& kind, const OSSL_ALGORITHM* all, Algorithms* kept, std::size_t* missing) {
  std::size_t count = 0;
  for (const std::string_view wanted : kind.names) {
    const OSSL_ALGORITHM* found = wanted.empty() ? nullptr : all;
    for (; found != nullptr && found->algorithm_names != nullptr; ++found) {
      const std::string_view names(found->algorithm_names);
      if (names.substr(0, names.find(':')) == wanted) break;
    }
    if (found != nullptr && found->algorithm_names != nullptr) (*kept)[count++] = *found;
  }
  for (const std::string_view wanted : kind.names) *missing += wanted.empty() ? 0 : 1;
  *missing -= count;
}

void prepare(const OSSL_DISPATCH* theirs, void* provider) {
  Answers& ours = answers();
  std::size_t count = 0;
  for (; theirs->function_id != 0 && count + 1 < ours.functions.size(); ++theirs) {
    OSSL_DISPATCH& function = ours.functions[count++];
    function = *theirs;
    if (theirs->function_id == OSSL_FUNC_PROVIDER_QUERY_OPERATION) {
      ours.all = OSSL_FUNC_provider_query_operation(theirs);
      function.function = reinterpret_cast<void (*)()>(&query);
    } else if (theirs->function_id == OSSL_FUNC_PROVIDER_GET_CAPABILITIES) {
      ours.capabilities = OSSL_FUNC_provider_get_capabilities(theirs);
      function.function = reinterpret_cast<void (*)()>(&tell_capabilities);
    }
  }
  if (theirs->function_id != 0 || ours.all == nullptr || ours.capabilities == nullptr) return;
  std::size_t missing = 0;
  for (std::size_t kind = 0; kind < std::size(kKinds); ++kind) {
    int no_cache = 0;
    keep(kKinds[kind], ours.all(provider, kKinds[kind].operation, &no_cache),
         &ours.algorithms[kind], &missing);
  }
  ours.whole = missing == 0;
}

int start(const OSSL_CORE_HANDLE* core, const OSSL_DISPATCH* from, const OSSL_DISPATCH** to,
          void** provider) {
  const OSSL_DISPATCH* theirs = nullptr;
  if (ossl_default_provider_init(core, from, &theirs, provider) != 1) return 0;
  static std::once_flag once;
  std::call_once(once, [theirs, provider] { prepare(theirs, *provider); });
  // Another version of OpenSSL may have other names. Then its default provider is used unchanged.
  *to = answers().whole ? answers().functions.data() : theirs;
  return 1;
}

}  // namespace

bool load_few_algorithms(OSSL_LIB_CTX* context) {
  return OSSL_PROVIDER_add_builtin(context, kName, &start) == 1 &&
         OSSL_PROVIDER_load(context, kName) != nullptr;
}

}  // namespace gpurun::transport::tls

#else

namespace gpurun::transport::tls {

bool load_few_algorithms(OSSL_LIB_CTX*) { return false; }

}  // namespace gpurun::transport::tls

#endif
