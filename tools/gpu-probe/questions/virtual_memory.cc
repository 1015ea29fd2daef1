// Question: what is the granularity of virtual memory, and what do create, map, access and unmap
// cost?
#include "questions/questions.h"

namespace gpurun::probe {
namespace {

using Clock = std::chrono::steady_clock;

void measure_chunk(const Driver& driver, const CUmemAllocationProp& properties, std::size_t bytes,
                   Answer* answer) {
  CUdeviceptr range = 0;
  must(CU(driver, cuMemAddressReserve)(&range, bytes, 0, 0, 0), "cuMemAddressReserve");
  CUmemGenericAllocationHandle handle = 0;
  auto start = Clock::now();
  must(CU(driver, cuMemCreate)(&handle, bytes, &properties, 0), "cuMemCreate");
  const double create = seconds_since(start);
  start = Clock::now();
  must(CU(driver, cuMemMap)(range, bytes, 0, handle, 0), "cuMemMap");
  const double map = seconds_since(start);
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  start = Clock::now();
  must(CU(driver, cuMemSetAccess)(range, bytes, &access, 1), "cuMemSetAccess");
  const double set_access = seconds_since(start);
  must(CU(driver, cuMemsetD8_v2)(range, 0x5a, bytes), "cuMemsetD8");
  unsigned char back = 0;
  must(CU(driver, cuMemcpyDtoH_v2)(&back, range + bytes - 1, 1), "cuMemcpyDtoH");
  start = Clock::now();
  must(CU(driver, cuMemUnmap)(range, bytes), "cuMemUnmap");
  const double unmap = seconds_since(start);
  start = Clock::now();
  must(CU(driver, cuMemRelease)(handle), "cuMemRelease");
  const double release = seconds_since(start);
  must(CU(driver, cuMemAddressFree)(range, bytes), "cuMemAddressFree");
  answer->fact("chunk." + std::to_string(bytes >> 20) + "MiB",
               Json::object({{"works", Json::boolean(back == 0x5a)},
                             {"create_us", Json::number(create * 1e6)},
                             {"map_us", Json::number(map * 1e6)},
                             {"set_access_us", Json::number(set_access * 1e6)},
                             {"unmap_us", Json::number(unmap * 1e6)},
                             {"release_us", Json::number(release * 1e6)}}));
}

}  // namespace

void ask_virtual_memory(const std::string& libcuda, Answer* answer) {
  const Driver driver(libcuda);
  Stage stage(driver, Level::kContext);
  int supported = 0;
  must(CU(driver, cuDeviceGetAttribute)(
           &supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, stage.device),
       "cuDeviceGetAttribute");
  answer->fact("supported", Json::boolean(supported != 0));
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = stage.device;
  std::size_t bytes = 0;
  must(CU(driver, cuMemGetAllocationGranularity)(&bytes, &properties,
                                                 CU_MEM_ALLOC_GRANULARITY_MINIMUM),
       "cuMemGetAllocationGranularity");
  answer->fact("granularity_minimum_bytes", Json::integer(static_cast<std::int64_t>(bytes)));
  must(CU(driver, cuMemGetAllocationGranularity)(&bytes, &properties,
                                                 CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
       "cuMemGetAllocationGranularity");
  answer->fact("granularity_recommended_bytes", Json::integer(static_cast<std::int64_t>(bytes)));
  for (const std::size_t chunk : {2U << 20, 32U << 20, 512U << 20})
    measure_chunk(driver, properties, chunk, answer);
}

}  // namespace gpurun::probe
