// Ready line: one line with gpurund's address, GPUs, driver, security and version, printed once it
// serves.
#pragma once

#include <string>

#include "server/daemon/workers/spawn.h"

namespace gpurun::server {

struct ReadyFacts {
  std::string address;
  ServerFacts server;
  std::string driver_path;
  bool tls_only = false;
  bool speaks_tls = false;  // It has a certificate.
  bool insecure_plaintext = false;
  bool within_machine = false;  // It listens on the loopback interface only.
};

// "ready on 127.0.0.1:4790: 2 GPUs (NVIDIA H100) of /usr/lib/libcuda.so.1; not encrypted; gpurund
// 0.1.0 (protocol 5, commit 50f9d4fe)".
std::string ready_line(const ReadyFacts& facts);
// Prints to stdout, because services have their log there, too.
void print_ready_line(const std::string& line);

}  // namespace gpurun::server
