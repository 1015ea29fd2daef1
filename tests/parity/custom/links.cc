// Links: the driver fills a state's logs and values for the state's whole life. Covers inputs of
// every length and the returned image.
#include <cmath>
#include <fstream>

#include "tests/parity/custom/kernels.h"

namespace gpurun::parity {
namespace {

// The memory that the driver writes to, once for each side.
struct Outputs {
  static constexpr unsigned kCount = 7;
  CUjit_option options[kCount] = {CU_JIT_MAX_REGISTERS,
                                  CU_JIT_LOG_VERBOSE,
                                  CU_JIT_WALL_TIME,
                                  CU_JIT_INFO_LOG_BUFFER,
                                  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                                  CU_JIT_ERROR_LOG_BUFFER,
                                  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  char info[200] = "untouched";
  char error[20] = "untouched";
  // The value of the time is not a number yet, so the worker's is the same.
  void* values[kCount] = {reinterpret_cast<void*>(32),          reinterpret_cast<void*>(1),
                          reinterpret_cast<void*>(0xffffffff),  info,
                          reinterpret_cast<void*>(sizeof info), error,
                          reinterpret_cast<void*>(sizeof error)};

  float milliseconds() const {
    float value = 0;
    std::memcpy(&value, &values[2], sizeof value);
    return value;
  }
};

struct BothOutputs {
  Outputs client, driver;

  void expect_equal() const {
    EXPECT_STREQ(client.info, driver.info);
    EXPECT_STREQ(client.error, driver.error);
    EXPECT_EQ(client.values[4], driver.values[4]);
    EXPECT_EQ(client.values[6], driver.values[6]);
    EXPECT_EQ(std::isnan(client.milliseconds()), std::isnan(driver.milliseconds()));
    if (!std::isnan(driver.milliseconds())) {
      EXPECT_EQ(client.milliseconds(), driver.milliseconds());
    }
  }
};

Both<CUlinkState> new_link(Trial& t) {
  Both<CUlinkState> link;
  const Seen seen = t.client(FN(cuLinkCreate_v2), 0u, nullptr, nullptr, &link.client);
  EXPECT_EQ(seen.result, CUDA_SUCCESS);
  t.bind(link, seen, "cuLinkCreate_v2", "stateOut");
  t.at_end([&t, link] { (void)t.call_client(FN(cuLinkDestroy), link); });
  return link;
}

// Short enough for the record, or longer.
std::string some_text(Trial& t) {
  return new_image(t) + std::string(t.one_of({std::size_t{0}, std::size_t{100'000}}), '\n');
}

void add_text(Trial& t, Both<CUlinkState> link, std::string text) {
  EXPECT_EQ(t.call_client(FN(cuLinkAddData_v2), link, CU_JIT_INPUT_PTX, text.data(),
                          text.size() + 1, nullptr, 0u, nullptr, nullptr),
            CUDA_SUCCESS);
}

void add_creation(TrialTable& table) {
  table.add("cuLinkCreate_v2", [](Trial& t) {
    BothOutputs outputs;
    Both<CUlinkState> link;
    const auto count = t.one_of({0u, 2u, Outputs::kCount});
    const Both<CUjit_option*> options{outputs.client.options, outputs.driver.options};
    const Both<void**> values{outputs.client.values, outputs.driver.values};
    const bool none = count == 0;
    const Seen seen = t.same(FN(cuLinkCreate_v2), count, none ? Both<CUjit_option*>{} : options,
                             none ? Both<void**>{} : values, out(link));
    outputs.expect_equal();
    Both<CUlinkState> made = link;
    t.bind(made, seen, "cuLinkCreate_v2", "stateOut");
    // The driver writes there while the state lives.
    for (const char* text : {"// good", "broken: once", "broken: and again"}) {
      char data[32];
      std::strcpy(data, text);
      const CUresult expected = text[0] == '/' ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
      EXPECT_EQ(t.call_client(FN(cuLinkAddData_v2), link, CU_JIT_INPUT_PTX, data, sizeof data,
                              "name", 0u, nullptr, nullptr),
                expected);
      EXPECT_EQ(t.call_direct(FN(cuLinkAddData_v2), link, CU_JIT_INPUT_PTX, data, sizeof data,
                              "name", 0u, nullptr, nullptr),
                expected);
      outputs.expect_equal();
    }
    if (count == Outputs::kCount) {
      EXPECT_STREQ(outputs.client.info, "name: 32 bytes\n");
      EXPECT_STREQ(outputs.client.error, "name is broken\nname");
    }
    EXPECT_EQ(t.call_client(FN(cuLinkDestroy), made), CUDA_SUCCESS);
  });
  table.add("cuLinkDestroy", [](Trial& t) {
    Both<CUlinkState> link, directly;
    t.bind(link, t.client(FN(cuLinkCreate_v2), 0u, nullptr, nullptr, &link.client),
           "cuLinkCreate_v2", "stateOut");
    EXPECT_EQ(t.call_direct(FN(cuLinkCreate_v2), 0u, nullptr, nullptr, &directly.driver),
              CUDA_SUCCESS);
    t.expect_same(
        t.client(FN(cuLinkDestroy), link),
        Trial::renamed(t.direct(FN(cuLinkDestroy), directly), directly.driver, link.driver));
  });
}

void add_inputs(TrialTable& table) {
  table.add("cuLinkAddData_v2", [](Trial& t) {
    const Both<CUlinkState> link = new_link(t);
    std::string data = some_text(t);
    CUjit_option option = CU_JIT_MAX_REGISTERS;
    void* value = reinterpret_cast<void*>(t.draw(16, 255));
    const auto count = t.one_of({0u, 1u});
    const auto type = t.one_of({CU_JIT_INPUT_PTX, CU_JIT_INPUT_CUBIN, CU_JIT_INPUT_FATBINARY,
                                CU_JIT_INPUT_OBJECT, CU_JIT_INPUT_LIBRARY, CU_JIT_INPUT_NVVM});
    t.same(FN(cuLinkAddData_v2), link, type, data.data(), data.size() + 1,
           t.one_of<const char*>({nullptr, "", "a name"}), count, count == 0 ? nullptr : &option,
           count == 0 ? nullptr : &value);
  });
  table.translated("cuLinkAddFile_v2", "cuLinkAddData_v2 with the file's bytes", [](Trial& t) {
    const Both<CUlinkState> link = new_link(t);
    std::string data = some_text(t);
    const std::string file = World::get().folder() / "input";
    std::ofstream(file) << data;
    const auto type = t.one_of({CU_JIT_INPUT_PTX, CU_JIT_INPUT_LIBRARY});
    const Seen seen =
        t.client(FN(cuLinkAddFile_v2), link, type, file.c_str(), 0u, nullptr, nullptr);
    // Text gets the final NUL that data of its type has.
    const std::size_t bytes = data.size() + (type == CU_JIT_INPUT_PTX ? 1 : 0);
    t.expect_same(seen, t.direct(FN(cuLinkAddData_v2), link, type, data.data(), bytes, file.c_str(),
                                 0u, nullptr, nullptr));
  });
}

void add_completion(TrialTable& table) {
  table.add("cuLinkComplete", [](Trial& t) {
    const Both<CUlinkState> link = new_link(t);
    add_text(t, link, some_text(t));
    add_text(t, link, std::string(t.one_of({std::size_t{1}, std::size_t{600'000}}), ' '));
    Both<void*> image;
    Both<std::size_t> bytes;
    Both<CUlinkState> both = link;
    const Seen by_client = t.client(FN(cuLinkComplete), both, &image.client, &bytes.client);
    Seen direct = t.direct(FN(cuLinkComplete), both, &image.driver, &bytes.driver);
    // The client fetches a long image in parts, which does not involve the device.
    t.expect_same(by_client, direct);
    ASSERT_EQ(bytes.client, bytes.driver);
    EXPECT_EQ(std::memcmp(image.client, image.driver, bytes.driver), 0);
    // The image is still there, and loads by its address alone.
    Both<void*> again;
    EXPECT_EQ(t.call_client(FN(cuLinkComplete), both, &again.client, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(again.client, image.client);
    Both<CUmodule> module;
    t.bind(module, t.client(FN(cuModuleLoadData), &module.client, image.client),
           "cuModuleLoadDataEx", "module");
    EXPECT_EQ(t.call_client(FN(cuModuleUnload), module), CUDA_SUCCESS);
  });
}

}  // namespace

void add_link_trials(TrialTable& table) {
  add_creation(table);
  add_inputs(table);
  add_completion(table);
}

}  // namespace gpurun::parity
