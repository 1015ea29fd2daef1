// Unserved rows: the rows that a driver cannot serve. It does not export their names, or, for the
// emulated device, exports names without a function behind them.
#include "server/driver/snapshot.h"
#include "server/handlers/handlers.h"

namespace gpurun::server {

std::vector<std::uint16_t> unserved_rows(const CudaDriver& driver, const Handlers& handlers) {
  using driver_abi::Completion;
  const driver_abi::EmulatedView* const emulated = emulated_view(driver);
  std::vector<std::uint16_t> unserved;
  for (const driver_abi::Row& row : driver_abi::rows()) {
    if (row.completion == Completion::kLocal || row.completion == Completion::kRefused) continue;
    if (row.opcode != row.alias_opcode) continue;  // It travels as the row that it is an alias of.
    // The handler of a custom row may not need the driver's function of that name.
    const bool custom = row.implementation == driver_abi::Implementation::kCustom;
    if (custom && handlers.by_opcode[row.opcode] != nullptr) continue;
    const bool serves =
        driver.has(row.opcode) && (emulated == nullptr || emulated->implements(row.opcode));
    if (!serves) unserved.push_back(row.opcode);
  }
  return unserved;
}

}  // namespace gpurun::server
