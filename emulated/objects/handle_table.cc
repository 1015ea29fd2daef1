// The table of the process.
#include "emulated/objects/handle_table.h"

namespace gpurun::emulated {

HandleTable& handles() {
  static HandleTable* table = new HandleTable;
  return *table;
}

}  // namespace gpurun::emulated
