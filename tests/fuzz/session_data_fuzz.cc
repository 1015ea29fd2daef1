// What a client process is told before it calls: its session data, and the snapshot of a server's
// devices.
#include <string>

#include "client/device_snapshot.h"
#include "client/session_data.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpurun;
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto session = client::parse_session_data(text); session.ok()) {
    GPURUN_FUZZ_CHECK(!session->servers.empty());
  }
  // The list of visible devices is the program's own; a stranger's, for what it may do here.
  const std::string visible = text.substr(0, text.find('\0'));
  const ByteView message = byte_view(data, size);
  static_cast<void>(client::DeviceSnapshot::parse(message, nullptr));
  static_cast<void>(client::DeviceSnapshot::parse(message, visible.c_str()));
  return 0;
}
