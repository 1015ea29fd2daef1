// Run secret: the secret that a server makes for one run, when it serves its own machine and was
// given none. Also the place where that server and its user's tools look for it.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::protocol {

// Hexadecimal digits of 32 random bytes.
Result<Bytes> make_secret();

// The folder for this process's user: /run/gpurun for root, else gpurun in XDG_RUNTIME_DIR (XDG
// Base Directory Specification). Empty: the environment names none.
std::string run_secret_folder();
// The file's name in that folder, for the server on `port`.
std::string run_secret_name(std::uint16_t port);

}  // namespace gpurun::protocol
