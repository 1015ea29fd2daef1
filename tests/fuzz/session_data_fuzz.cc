// Session data: the data that a client process receives before its first call, and the snapshot of
// a server's devices.
#include <string>

#include "client/attach/session_data.h"
#include "client/devices/device_snapshot.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpurun;
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto session = client::parse_session_data(text); session.ok()) {
    GPURUN_FUZZ_CHECK(!session->servers.empty());
  }
  // The list of visible devices is the program's own. Here it comes from the untrusted input too.
  const std::string visible = text.substr(0, text.find('\0'));
  const ByteView message = byte_view(data, size);
  static_cast<void>(client::DeviceSnapshot::parse(message, nullptr));
  static_cast<void>(client::DeviceSnapshot::parse(message, visible.c_str()));
  return 0;
}
