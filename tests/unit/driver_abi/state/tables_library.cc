// Tables library: a shared library that serves the export tables. The test loads it twice.
#include "driver_abi/state/export_tables.h"

#define GPURUN_TEST_EXPORT extern "C" __attribute__((visibility("default")))

GPURUN_TEST_EXPORT CUresult facts_get_table(const void** table, const CUuuid* id) {
  return gpurun::driver_abi::get_export_table(table, id);
}

GPURUN_TEST_EXPORT void facts_set_host(const gpurun::driver_abi::ExportTableHost* host) {
  gpurun::driver_abi::set_export_table_host(host);
}
