// Modules: the first load sends the bytes, the second one only their hash.
#include <fstream>

#include "tests/parity/custom/kernels.h"

namespace gpurun::parity {
namespace {

constexpr char kLoad[] = "cuModuleLoadDataEx with the image's bytes";
constexpr char kFromTable[] = "answered in the client from what the load has told";

// Sometimes an image that the server knows, so that only its hash travels.
std::string some_image(Trial& t) { return t.draw(0, 2) == 0 ? kPtx : new_image(t); }

Seen expected_load(Trial& t, const std::string& image) {
  CUmodule loaded = nullptr;
  return t.direct(FN(cuModuleLoadDataEx), &loaded, image.c_str(), 0u, nullptr, nullptr);
}

// The result is a module of the device.
void expect_module(Trial& t, Both<CUmodule> module, const Seen& by_client) {
  t.bind(module, by_client, "cuModuleLoadDataEx", "module");
  t.at_end([&t, module] { (void)t.call_client(FN(cuModuleUnload), module); });
  Both<CUfunction> function;
  t.same(FN(cuModuleGetFunction), out(function), module, "scale");
}

void add_loads(TrialTable& table) {
  table.translated("cuModuleLoad", kLoad, [](Trial& t) {
    const std::string image = some_image(t);
    const std::string file = World::get().folder() / "image.ptx";
    std::ofstream(file) << image;
    Both<CUmodule> module;
    const Seen seen = t.client(FN(cuModuleLoad), &module.client, file.c_str());
    t.expect_same(seen, expected_load(t, image));
    expect_module(t, module, seen);
  });
  table.translated("cuModuleLoadData", kLoad, [](Trial& t) {
    const std::string image = some_image(t);
    Both<CUmodule> module;
    const Seen seen = t.client(FN(cuModuleLoadData), &module.client, image.c_str());
    t.expect_same(seen, expected_load(t, image));
    expect_module(t, module, seen);
  });
  table.translated("cuModuleLoadFatBinary", kLoad, [](Trial& t) {
    const std::string image = some_image(t);
    Both<CUmodule> module;
    const Seen seen = t.client(FN(cuModuleLoadFatBinary), &module.client, image.c_str());
    t.expect_same(seen, expected_load(t, image));
    expect_module(t, module, seen);
  });
  table.add("cuModuleLoadDataEx", [](Trial& t) {
    // One of the images does not fit into a record.
    const std::string image =
        some_image(t) + std::string(t.one_of({std::size_t{0}, std::size_t{100'000}}), '\n');
    char log[256] = "untouched";
    CUjit_option options[] = {CU_JIT_MAX_REGISTERS, CU_JIT_OPTIMIZATION_LEVEL,
                              CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
    void* const values[] = {reinterpret_cast<void*>(t.draw(16, 255)),
                            reinterpret_cast<void*>(t.draw(0, 4)), log,
                            reinterpret_cast<void*>(sizeof log)};
    void* client_values[4];
    void* driver_values[4];
    std::memcpy(client_values, values, sizeof values);
    std::memcpy(driver_values, values, sizeof values);
    const auto count = t.one_of({0u, 1u, 2u, 4u});
    Both<CUmodule> module;
    const Both<CUjit_option*> names{options, options};
    const Both<void**> numbers{client_values, driver_values};
    const bool none = count == 0;
    const Seen seen = t.same(FN(cuModuleLoadDataEx), out(module), image.c_str(), count,
                             none ? Both<CUjit_option*>{} : names, none ? Both<void**>{} : numbers);
    EXPECT_STREQ(log, count == 4 ? "" : "untouched");
    expect_module(t, module, seen);
  });
  table.add("cuModuleUnload", [](Trial& t) {
    Both<CUmodule> module, directly;
    t.bind(module, t.client(FN(cuModuleLoadData), &module.client, kPtx), "cuModuleLoadDataEx",
           "module");
    EXPECT_EQ(t.call_direct(FN(cuModuleLoadData), &directly.driver, kPtx), CUDA_SUCCESS);
    t.expect_same(
        t.client(FN(cuModuleUnload), module),
        Trial::renamed(t.direct(FN(cuModuleUnload), directly), directly.driver, module.driver));
  });
}

void add_functions(TrialTable& table) {
  table.add("cuModuleGetFunction", [](Trial& t) {
    const Both<CUmodule> module = new_module(t);
    Both<CUfunction> function;
    const Seen seen = t.same(FN(cuModuleGetFunction), out(function), module, "add");
    // The device has one handle for both, and the client's handle stands for it.
    Both<CUfunction> expected = function;
    t.bind(expected, seen, "cuModuleGetFunction", "hfunc");
    EXPECT_EQ(expected.driver, function.driver);
    t.same(FN(cuFuncSetCacheConfig), function, CU_FUNC_CACHE_PREFER_L1);
  });
  table.translated("cuModuleGetFunctionCount", kFromTable, [](Trial& t) {
    const Both<CUmodule> module = new_module(t);
    Both<unsigned> count;
    const int expected = t.direct(FN(cuModuleGetFunctionCount), &count.driver, module).result;
    t.expect_local(t.client(FN(cuModuleGetFunctionCount), &count.client, module), expected);
    t.expect_equal(count);
  });
  table.translated(
      "cuModuleEnumerateFunctions", "each by its name, in the image's order", [](Trial& t) {
        const Both<CUmodule> module = new_module(t);
        CUfunction listed[3] = {}, asked[3] = {};
        const auto room = static_cast<unsigned>(t.draw(1, 3));
        const Seen seen = t.client(FN(cuModuleEnumerateFunctions), listed, room, module);
        const Seen expected = t.direct_call([&] {
          const char* const names[] = {"add", "scale", "nothing"};
          for (unsigned i = 0; i < room; ++i) {
            (void)t.call_direct(FN(cuModuleGetFunction), &asked[i], module, names[i]);
          }
          return CUDA_SUCCESS;
        });
        t.expect_same(seen, expected);
        for (unsigned i = 0; i < room; ++i) {
          t.same(FN(cuFuncSetCacheConfig), Both<CUfunction>{listed[i], asked[i]},
                 CU_FUNC_CACHE_PREFER_SHARED);
        }
        for (unsigned i = room; i < 3; ++i) EXPECT_EQ(listed[i], nullptr);
      });
  table.add("cuModuleGetGlobal_v2", [](Trial& t) {
    const Both<CUmodule> module = new_module(t);
    Both<CUdeviceptr> address;
    Both<std::size_t> bytes;
    t.same(FN(cuModuleGetGlobal_v2), out(address), out(bytes), module, "table");
    t.expect_equal(address);
    t.expect_equal(bytes);
    // The client answers the second call itself.
    Both<CUdeviceptr> again = address;
    t.expect_local(t.client(FN(cuModuleGetGlobal_v2), &again.client, nullptr, module, "table"),
                   CUDA_SUCCESS);
    t.expect_equal(again);
  });
}

}  // namespace

void add_module_trials(TrialTable& table) {
  add_loads(table);
  add_functions(table);
}

}  // namespace gpurun::parity
