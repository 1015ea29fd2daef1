// Run secret: both ends use this one file, so that they look in the same place.
#include "protocol/auth/run_secret.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

#include "base/random.h"
#include "protocol/auth/proof.h"

namespace gpurun::protocol {

Result<Bytes> make_secret() {
  const auto random = random_array<std::array<std::uint8_t, 32>>();
  if (!random.ok()) return random.status();
  Bytes digits;
  for (const std::uint8_t byte : *random) {
    for (const int shift : {4, 0}) {
      digits.push_back(static_cast<std::byte>("0123456789abcdef"[(byte >> shift) & 15]));
    }
  }
  return digits;
}

std::string run_secret_folder() {
  if (geteuid() == 0) return "/run/gpurun";
  const char* base = getenv("XDG_RUNTIME_DIR");
  return base != nullptr && base[0] == '/' ? std::string(base) + "/gpurun" : std::string();
}

std::string run_secret_name(std::uint16_t port) { return std::to_string(port) + ".secret"; }

}  // namespace gpurun::protocol
