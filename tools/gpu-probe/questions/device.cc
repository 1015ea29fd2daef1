// Question: what does the device report about itself? Names, memory and every attribute.
#include "questions/questions.h"

namespace gpurun::probe {

void ask_device(const std::string& libcuda, Answer* answer) {
  const Driver driver(libcuda);
  int version = 0;
  answer->fact("driver_version_result", Json::result(CU(driver, cuDriverGetVersion)(&version)));
  answer->fact("driver_version", Json::integer(version));
  Stage stage(driver, Level::kInit);
  int count = 0;
  must(CU(driver, cuDeviceGetCount)(&count), "cuDeviceGetCount");
  answer->fact("devices", Json::integer(count));
  char text[256] = {};
  must(CU(driver, cuDeviceGetName)(text, sizeof text, stage.device), "cuDeviceGetName");
  answer->fact("name", Json::text(text));
  must(CU(driver, cuDeviceGetPCIBusId)(text, sizeof text, stage.device), "cuDeviceGetPCIBusId");
  answer->fact("pci_bus_id", Json::text(text));
  std::size_t bytes = 0;
  must(CU(driver, cuDeviceTotalMem_v2)(&bytes, stage.device), "cuDeviceTotalMem");
  answer->fact("total_bytes", Json::integer(static_cast<std::int64_t>(bytes)));

  // Beyond the last attribute of 13.0, to see what a newer driver adds.
  std::vector<std::pair<std::string, Json>> attributes;
  std::vector<Json> refused;
  for (int id = 1; id < 200; ++id) {
    int value = 0;
    const CUresult result =
        CU(driver, cuDeviceGetAttribute)(&value, static_cast<CUdevice_attribute>(id), stage.device);
    if (result == CUDA_SUCCESS)
      attributes.emplace_back(std::to_string(id), Json::integer(value));
    else
      refused.push_back(Json::integer(id));
  }
  answer->fact("attributes", Json::object(attributes));
  answer->fact("attributes_refused", Json::list(refused));
}

}  // namespace gpurun::probe
