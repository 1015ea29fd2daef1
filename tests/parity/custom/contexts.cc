// Contexts: the last two trials end the context of all other trials, so they come last in the
// table.
#include "tests/parity/custom/trial_cuda.h"

namespace gpurun::parity {
namespace {

constexpr CUdevice kDevice = 0;

unsigned some_flags(Trial& t) {
  return t.one_of({0u, 1u, 2u, 4u}) | t.one_of({0u, unsigned{CU_CTX_LMEM_RESIZE_TO_MAX}});
}

// Pops the new context, which is current for the client and for the direct call. Its work runs in
// the device's context.
void expect_context(Trial& t, Both<CUcontext> context, const Seen& by_client,
                    const char* function) {
  EXPECT_EQ(t.call_direct(FN(cuCtxPopCurrent_v2), nullptr), CUDA_SUCCESS);
  t.bind(context, by_client, function, "pctx");
  Both<CUstream> stream;
  const Seen seen = t.client(FN(cuStreamCreate), &stream.client, 1u);
  EXPECT_EQ(t.call_direct(FN(cuCtxPushCurrent_v2), context), CUDA_SUCCESS);
  t.expect_same(seen, t.direct(FN(cuStreamCreate), &stream.driver, 1u));
  EXPECT_EQ(t.call_direct(FN(cuCtxPopCurrent_v2), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(t.call_client(FN(cuCtxDestroy_v2), context), CUDA_SUCCESS);
}

CUexecAffinityParam some_affinity(Trial& t) {
  CUexecAffinityParam affinity{};
  affinity.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT;
  affinity.param.smCount.val = static_cast<unsigned>(t.draw(1, 100));
  return affinity;
}

// Without affinities the driver sees the second version.
template <typename Call>
void compare_creation(Trial& t, unsigned flags, CUexecAffinityParam* affinity, Call call) {
  Both<CUcontext> context;
  const Seen seen = t.client_call([&] { return call(&context.client); });
  if (affinity == nullptr) {
    t.expect_same(seen, t.direct(FN(cuCtxCreate_v2), &context.driver, flags, kDevice));
  } else {
    t.expect_same(seen, t.direct(FN(cuCtxCreate_v3), &context.driver, affinity, 1, flags, kDevice));
  }
  expect_context(t, context, seen, affinity == nullptr ? "cuCtxCreate_v2" : "cuCtxCreate_v3");
}

void add_creation(TrialTable& table) {
  table.add("cuCtxCreate_v2", [](Trial& t) {
    Both<CUcontext> context;
    const Seen seen = t.same(FN(cuCtxCreate_v2), out(context), some_flags(t), kDevice);
    expect_context(t, context, seen, "cuCtxCreate_v2");
  });
  table.translated("cuCtxCreate_v3", "cuCtxCreate_v2 where no affinity is given", [](Trial& t) {
    CUexecAffinityParam affinity = some_affinity(t);
    CUexecAffinityParam* const given = t.draw(0, 1) == 0 ? nullptr : &affinity;
    const unsigned flags = some_flags(t);
    compare_creation(t, flags, given, [&](CUcontext* made) {
      return t.call_client(FN(cuCtxCreate_v3), made, given, given == nullptr ? 0 : 1, flags,
                           kDevice);
    });
  });
  table.translated(
      "cuCtxCreate_v4", "cuCtxCreate_v3, or _v2 where no affinity is given", [](Trial& t) {
        CUexecAffinityParam affinity = some_affinity(t);
        CUctxCreateParams parameters{};
        parameters.execAffinityParams = &affinity;
        parameters.numExecAffinityParams = 1;
        CUctxCreateParams* const given = t.draw(0, 1) == 0 ? nullptr : &parameters;
        const unsigned flags = some_flags(t);
        compare_creation(t, flags, given == nullptr ? nullptr : &affinity, [&](CUcontext* made) {
          return t.call_client(FN(cuCtxCreate_v4), made, given, flags, kDevice);
        });
      });
  table.add("cuCtxDestroy_v2", [](Trial& t) {
    Both<CUcontext> context;
    CUcontext directly = nullptr;
    t.bind(context, t.client(FN(cuCtxCreate_v2), &context.client, 0u, kDevice), "cuCtxCreate_v2",
           "pctx");
    EXPECT_EQ(t.call_direct(FN(cuCtxCreate_v2), &directly, 0u, kDevice), CUDA_SUCCESS);
    t.expect_same(
        t.client(FN(cuCtxDestroy_v2), context),
        Trial::renamed(t.direct(FN(cuCtxDestroy_v2), directly), directly, context.driver));
  });
}

void add_current(TrialTable& table) {
  table.translated("cuInit", "the worker has done it before the client came", [](Trial& t) {
    EXPECT_TRUE(World::get().driver_was_initialized());
    t.expect_local(t.client(FN(cuInit), 0u), CUDA_SUCCESS);
  });
  table.add("cuCtxSetFlags", [](Trial& t) { t.same(FN(cuCtxSetFlags), some_flags(t)); });
  table.add("cuCtxSynchronize", [](Trial& t) {
    t.say_something();
    t.expect_same(t.client_alone(FN(cuCtxSynchronize)), t.direct(FN(cuCtxSynchronize)));
  });
  table.translated("cuCtxSynchronize_v2", "cuCtxSynchronize in that context", [](Trial& t) {
    Both<CUcontext> context;
    t.bind(context, t.client(FN(cuCtxCreate_v2), &context.client, 0u, kDevice), "cuCtxCreate_v2",
           "pctx");
    t.say_something();
    EXPECT_EQ(t.call_client(FN(cuCtxPopCurrent_v2), nullptr), CUDA_SUCCESS);
    const Seen seen = t.client_alone(FN(cuCtxSynchronize_v2), context);
    EXPECT_EQ(t.call_direct(FN(cuCtxPushCurrent_v2), context), CUDA_SUCCESS);
    t.expect_same(seen, t.direct(FN(cuCtxSynchronize)));
    EXPECT_EQ(t.call_direct(FN(cuCtxPopCurrent_v2), nullptr), CUDA_SUCCESS);
    EXPECT_EQ(t.call_client(FN(cuCtxDestroy_v2), context), CUDA_SUCCESS);
    t.say_something();
    t.expect_same(t.client_alone(FN(cuCtxSynchronize_v2), nullptr), t.direct(FN(cuCtxSynchronize)));
  });
}

void add_primary(TrialTable& table) {
  table.add("cuDevicePrimaryCtxSetFlags_v2",
            [](Trial& t) { t.same(FN(cuDevicePrimaryCtxSetFlags_v2), kDevice, some_flags(t)); });
  table.translated(
      "cuDevicePrimaryCtxRetain", "the worker hears of the first one only", [](Trial& t) {
        CUcontext context = nullptr;
        t.expect_local(t.client(FN(cuDevicePrimaryCtxRetain), &context, kDevice), CUDA_SUCCESS);
        EXPECT_EQ(context, t.context().client);
        t.expect_local(t.client(FN(cuDevicePrimaryCtxRelease_v2), kDevice), CUDA_SUCCESS);
      });
  // Ends the context, and creates it again for the next trial.
  const auto again = [](Trial& t, const Seen& seen) {
    CUcontext made = nullptr;
    t.expect_same(seen, t.direct_call([&] {
      EXPECT_EQ(t.call_direct(FN(cuDevicePrimaryCtxRelease_v2), kDevice), CUDA_SUCCESS);
      return t.call_direct(FN(cuDevicePrimaryCtxRetain), &made, kDevice);
    }));
  };
  table.translated(
      "cuDevicePrimaryCtxRelease_v2", "the worker hears of the last one only", [again](Trial& t) {
        CUcontext made = nullptr;
        again(t, t.client_call([&] {
          EXPECT_EQ(t.call_client(FN(cuDevicePrimaryCtxRelease_v2), kDevice), CUDA_SUCCESS);
          return t.call_client(FN(cuDevicePrimaryCtxRetain), &made, kDevice);
        }));
        EXPECT_EQ(made, t.context().client);
      });
  table.translated(
      "cuDevicePrimaryCtxReset_v2", "released by the worker, which holds it once",
      [again](Trial& t) {
        CUcontext made = nullptr;
        again(t, t.client_call([&] {
          EXPECT_EQ(t.call_client(FN(cuDevicePrimaryCtxReset_v2), kDevice), CUDA_SUCCESS);
          return t.call_client(FN(cuDevicePrimaryCtxRetain), &made, kDevice);
        }));
        EXPECT_EQ(made, t.context().client);
        t.expect_local(t.client(FN(cuDevicePrimaryCtxRelease_v2), kDevice), CUDA_SUCCESS);
      });
}

}  // namespace

void add_context_trials(TrialTable& table) {
  add_creation(table);
  add_current(table);
  add_primary(table);
}

}  // namespace gpurun::parity
