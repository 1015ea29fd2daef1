// Device facts: the parser of PCI addresses.
#include "driver_abi/semantics/device_facts.h"

#include <cstdio>

namespace gpurun::driver_abi {

std::optional<PciAddress> parse_pci_address(const char* text) noexcept {
  PciAddress address;
  if (std::sscanf(text, "%x:%x:%x", &address.domain, &address.bus, &address.device) == 3) {
    return address;
  }
  address.domain = 0;
  if (std::sscanf(text, "%x:%x", &address.bus, &address.device) == 2) return address;
  return {};
}

}  // namespace gpurun::driver_abi
