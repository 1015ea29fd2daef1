// Ready line: names of GPUs come from a driver, and must not break the line.
#include "server/daemon/ready_line.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "protocol/control/version_line.h"

namespace gpurun::server {
namespace {

std::string gpus(const ServerFacts& server) {
  const std::size_t count = server.devices.size();
  std::string text =
      count == 0 ? "no GPU" : std::to_string(count) + (count == 1 ? " GPU" : " GPUs");
  std::vector<std::string> models;
  for (const DeviceFacts& device : server.devices) {
    if (std::find(models.begin(), models.end(), device.name) != models.end()) continue;
    models.push_back(device.name);
  }
  for (std::size_t i = 0; i < models.size(); ++i) text += (i == 0 ? " (" : ", ") + models[i];
  return models.empty() ? text : text + ")";
}

std::string security(const ReadyFacts& facts) {
  if (facts.tls_only) return "TLS 1.3 only";
  if (facts.within_machine) return "for this machine only, not encrypted";
  if (!facts.speaks_tls) return "not encrypted";
  return facts.insecure_plaintext ? "TLS 1.3 beyond this machine unless both sides do without"
                                  : "TLS 1.3 beyond this machine";
}

}  // namespace

std::string ready_line(const ReadyFacts& facts) {
  std::string text = "ready on " + facts.address + ": " + gpus(facts.server) + " of " +
                     facts.driver_path + "; " + security(facts) + "; " +
                     protocol::version_line("gpurund");
  for (char& each : text) {
    if (static_cast<unsigned char>(each) < ' ' || each == 0x7f) each = '?';
  }
  return text;
}

void print_ready_line(const std::string& line) {
  const std::string text = "gpurund: " + line + "\n";
  static_cast<void>(!write(STDOUT_FILENO, text.data(), text.size()));
}

}  // namespace gpurun::server
