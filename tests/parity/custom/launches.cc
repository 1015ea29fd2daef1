// Launches, and attributes of kernels. The device must get each parameter's bytes.
#include "tests/parity/custom/kernels.h"

namespace gpurun::parity {
namespace {

constexpr char kPacked[] = "cuLaunchKernelEx with the parameters packed into one block";
constexpr char kFromTable[] = "answered in the client from what the load has told";

// The driver's half of a configuration has the driver's handles.
struct Config {
  Both<CUlaunchConfig> both;
  Both<CUstream> stream;
  std::vector<CUlaunchAttribute> client_attributes, driver_attributes;

  Config(Trial& t, const Both<CUstream>& in) : stream(in) {
    CUlaunchConfig config{};
    config.gridDimX = static_cast<unsigned>(t.draw(1, 1000));
    config.gridDimY = static_cast<unsigned>(t.draw(1, 1000));
    config.gridDimZ = static_cast<unsigned>(t.draw(1, 1000));
    config.blockDimX = static_cast<unsigned>(t.draw(1, 10));
    config.blockDimY = static_cast<unsigned>(t.draw(1, 10));
    config.blockDimZ = static_cast<unsigned>(t.draw(1, 10));
    config.sharedMemBytes = static_cast<unsigned>(t.draw(0, 49152));
    both = {config, config};
    both.client.hStream = stream.client, both.driver.hStream = stream.driver;
  }
  void add(CUlaunchAttribute attribute) { add(attribute, attribute); }
  void add(CUlaunchAttribute client, CUlaunchAttribute driver) {
    client_attributes.push_back(client);
    driver_attributes.push_back(driver);
    both.client.attrs = client_attributes.data(), both.driver.attrs = driver_attributes.data();
    both.client.numAttrs = both.driver.numAttrs = static_cast<unsigned>(client_attributes.size());
  }
  Both<const CUlaunchConfig*> pointer() const { return {&both.client, &both.driver}; }
};

CUlaunchAttribute attribute(CUlaunchAttributeID id) {
  CUlaunchAttribute made;
  std::memset(&made, 0, sizeof made);
  made.id = id;
  return made;
}

// Adds a few attributes, different ones in each run. One carries an event's handle.
void add_attributes(Trial& t, Config& config) {
  if (t.draw(0, 1) == 0) {
    CUlaunchAttribute priority = attribute(CU_LAUNCH_ATTRIBUTE_PRIORITY);
    priority.value.priority = -static_cast<int>(t.draw(0, 5));
    config.add(priority);
  }
  if (t.draw(0, 1) == 0) {
    CUlaunchAttribute cluster = attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
    cluster.value.clusterDim = {1, static_cast<unsigned>(t.draw(1, 4)), 2};
    config.add(cluster);
  }
  if (t.draw(0, 1) == 0) {
    CUlaunchAttribute window = attribute(CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW);
    window.value.accessPolicyWindow.base_ptr = reinterpret_cast<void*>(t.memory(4096));
    window.value.accessPolicyWindow.num_bytes = t.draw(1, 4096);
    window.value.accessPolicyWindow.hitRatio = 0.5f;
    window.value.accessPolicyWindow.hitProp = CU_ACCESS_PROPERTY_PERSISTING;
    config.add(window);
  }
  if (t.draw(0, 1) == 0) {
    const Both<CUevent> event = t.new_event(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
    CUlaunchAttribute client = attribute(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT);
    client.value.programmaticEvent.triggerAtBlockStart = 1;
    CUlaunchAttribute driver = client;
    client.value.programmaticEvent.event = event.client;
    driver.value.programmaticEvent.event = event.driver;
    config.add(client, driver);
  }
}

// The expected call, for both ways in which the program passes the parameters.
Seen expected_launch(Trial& t, const Config& config, const Both<CUfunction>& function,
                     AddArguments& arguments) {
  return t.direct(FN(cuLaunchKernelEx), config.pointer(), function, nullptr, arguments.extra());
}

void add_launches(TrialTable& table) {
  table.translated("cuLaunchKernel", kPacked, [](Trial& t) {
    const Both<CUfunction> function = any_function(t);
    const Config config(t, t.stream());
    const CUlaunchConfig& c = config.both.client;
    AddArguments arguments(t);
    const bool packed = t.draw(0, 1) == 0;
    t.expect_same(
        t.client(FN(cuLaunchKernel), function, c.gridDimX, c.gridDimY, c.gridDimZ, c.blockDimX,
                 c.blockDimY, c.blockDimZ, c.sharedMemBytes, config.stream,
                 packed ? nullptr : arguments.pointers(), packed ? arguments.extra() : nullptr),
        expected_launch(t, config, function, arguments));
  });
  table.translated("cuLaunchKernelEx", kPacked, [](Trial& t) {
    const Both<CUfunction> function = any_function(t);
    Config config(t, t.stream());
    add_attributes(t, config);
    AddArguments arguments(t);
    const bool packed = t.draw(0, 1) == 0;
    t.expect_same(
        t.client(FN(cuLaunchKernelEx), config.pointer(), function,
                 packed ? nullptr : arguments.pointers(), packed ? arguments.extra() : nullptr),
        expected_launch(t, config, function, arguments));
  });
  table.translated("cuLaunchCooperativeKernel",
                   "cuLaunchKernelEx with the attribute, its parameters packed", [](Trial& t) {
                     const Both<CUfunction> function = any_function(t);
                     Config config(t, t.stream());
                     // All blocks must fit the device at once.
                     for (CUlaunchConfig* each : {&config.both.client, &config.both.driver}) {
                       each->gridDimX = each->gridDimY = each->gridDimZ = 1;
                       each->sharedMemBytes %= 10'000;
                     }
                     config.both.client.gridDimY = config.both.driver.gridDimY = 2;
                     const CUlaunchConfig& c = config.both.client;
                     AddArguments arguments(t);
                     const Seen seen =
                         t.client(FN(cuLaunchCooperativeKernel), function, c.gridDimX, c.gridDimY,
                                  c.gridDimZ, c.blockDimX, c.blockDimY, c.blockDimZ,
                                  c.sharedMemBytes, config.stream, arguments.pointers());
                     CUlaunchAttribute cooperative = attribute(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
                     cooperative.value.cooperative = 1;
                     config.add(cooperative);
                     t.expect_same(seen, expected_launch(t, config, function, arguments));
                   });
}

// Parameters that calls from before CUDA 4 set stay in the client, and reach the device with the
// launch.
void prepare_legacy(Trial& t, const Both<CUfunction>& function, const Config& config,
                    AddArguments& arguments) {
  const CUlaunchConfig& c = config.both.client;
  const auto bytes = *static_cast<std::size_t*>(arguments.extra()[3]);
  const auto size = static_cast<unsigned>(bytes);
  const auto set = [](CUresult result) { EXPECT_EQ(result, CUDA_SUCCESS); };
  set(t.call_client(FN(cuFuncSetBlockShape), function, static_cast<int>(c.blockDimX),
                    static_cast<int>(c.blockDimY), static_cast<int>(c.blockDimZ)));
  set(t.call_client(FN(cuFuncSetSharedSize), function, c.sharedMemBytes));
  set(t.call_client(FN(cuParamSetv), function, 0, arguments.extra()[1], size));
  set(t.call_client(FN(cuParamSetSize), function, size));
}

void add_legacy_launches(TrialTable& table) {
  const auto trial = [&table](const char* symbol, auto stream_of, auto call) {
    table.translated(symbol, kPacked, [stream_of, call](Trial& t) {
      const Both<CUfunction> function = any_function(t);
      Config config(t, stream_of(t));
      config.both.client.gridDimZ = config.both.driver.gridDimZ = 1;
      AddArguments arguments(t);
      prepare_legacy(t, function, config, arguments);
      const Seen seen = call(t, function, config);
      t.expect_same(seen, expected_launch(t, config, function, arguments));
    });
  };
  const auto width = [](const Config& config) {
    return static_cast<int>(config.both.client.gridDimX);
  };
  const auto height = [](const Config& config) {
    return static_cast<int>(config.both.client.gridDimY);
  };
  const auto default_stream = [](Trial& t) { return t.default_stream(); };
  const auto any_stream = [](Trial& t) { return t.stream(); };
  trial("cuLaunch", default_stream, [](Trial& t, const Both<CUfunction>& f, Config& config) {
    for (CUlaunchConfig* each : {&config.both.client, &config.both.driver}) {
      each->gridDimX = each->gridDimY = 1;
    }
    return t.client(FN(cuLaunch), f);
  });
  trial("cuLaunchGrid", default_stream, [=](Trial& t, const Both<CUfunction>& f, Config& config) {
    return t.client(FN(cuLaunchGrid), f, width(config), height(config));
  });
  trial("cuLaunchGridAsync", any_stream, [=](Trial& t, const Both<CUfunction>& f, Config& config) {
    return t.client(FN(cuLaunchGridAsync), f, width(config), height(config), config.stream);
  });
}

template <typename Function>
void add_cluster_question(TrialTable& table, Function asked) {
  table.add(asked.name, [asked](Trial& t) {
    const Both<CUfunction> function = any_function(t);
    Config config(t, t.stream());
    add_attributes(t, config);
    Both<int> answer;
    t.same(asked, out(answer), function, config.pointer());
    t.expect_equal(answer);
  });
}

// The attributes that a program may set.
struct Setting {
  CUfunction_attribute attribute;
  int value;

  explicit Setting(Trial& t)
      : attribute(t.one_of({CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                            CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                            CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED})),
        value(attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                  ? static_cast<int>(t.draw(0, 40'000))
                  : static_cast<int>(t.draw(0, 1))) {}
};

void add_attributes_of_functions(TrialTable& table) {
  table.translated("cuFuncGetAttribute", kFromTable, [](Trial& t) {
    const Both<CUfunction> function = function_of(t, new_module(t), "add");
    for (int id = 0; id < CU_FUNC_ATTRIBUTE_MAX; ++id) {
      const auto which = static_cast<CUfunction_attribute>(id);
      Both<int> value{-1, -1};
      const int expected = t.direct(FN(cuFuncGetAttribute), &value.driver, which, function).result;
      t.expect_local(t.client(FN(cuFuncGetAttribute), &value.client, which, function), expected);
      t.expect_equal(value);
    }
  });
  table.translated("cuKernelGetAttribute", kFromTable, [](Trial& t) {
    const Both<CUkernel> kernel = kernel_of(t, new_library(t), "add");
    for (int id = 0; id < CU_FUNC_ATTRIBUTE_MAX; ++id) {
      const auto which = static_cast<CUfunction_attribute>(id);
      Both<int> value{-1, -1};
      const int expected =
          t.direct(FN(cuKernelGetAttribute), &value.driver, which, kernel, 0).result;
      t.expect_local(t.client(FN(cuKernelGetAttribute), &value.client, which, kernel, 0), expected);
      t.expect_equal(value);
    }
  });
  table.add("cuFuncSetAttribute", [](Trial& t) {
    const Both<CUfunction> function = function_of(t, new_module(t), "add");
    const Setting setting(t);
    t.same(FN(cuFuncSetAttribute), function, setting.attribute, setting.value);
    int value = -1;
    EXPECT_EQ(t.call_client(FN(cuFuncGetAttribute), &value, setting.attribute, function),
              CUDA_SUCCESS);
    EXPECT_EQ(value, setting.value);
  });
  table.add("cuKernelSetAttribute", [](Trial& t) {
    const Both<CUkernel> kernel = kernel_of(t, new_library(t), "add");
    const Setting setting(t);
    t.same(FN(cuKernelSetAttribute), setting.attribute, setting.value, kernel, 0);
    int value = -1;
    EXPECT_EQ(t.call_client(FN(cuKernelGetAttribute), &value, setting.attribute, kernel, 0),
              CUDA_SUCCESS);
    EXPECT_EQ(value, setting.value);
  });
}

}  // namespace

void add_launch_trials(TrialTable& table) {
  add_launches(table);
  add_legacy_launches(table);
  add_cluster_question(table, FN(cuOccupancyMaxActiveClusters));
  add_cluster_question(table, FN(cuOccupancyMaxPotentialClusterSize));
  add_attributes_of_functions(table);
}

}  // namespace gpurun::parity
