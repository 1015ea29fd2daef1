// Both tiers: one engine and one compiler for each form, shared by all tests of the process.
#include "both_tiers.h"

#include <gtest/gtest.h>

#include <memory>

#include "emulated/jit/backend.h"
#include "emulated/jit/compiler.h"
#include "emulated/module/module.h"
#include "emulated/runtime/context_runtime.h"
#include "tests/unit/emulated/module/host_memory.h"

namespace gpurun::emulated {
namespace {

struct World {
  explicit World(Tier tier, unsigned slice_lanes = kSliceLanes) {
    CompilerOptions options;
    options.tier = tier;
    options.slice_lanes = slice_lanes;
    compiler = std::move(*Compiler::create(runtime_functions(), options));
    EngineOptions engine_options;
    engine_options.threads = 2;
    engine = std::move(*Engine::create(engine_options));
  }
  std::unique_ptr<Compiler> compiler;
  std::unique_ptr<Engine> engine;
};

World& world_of(Tier tier, unsigned slice_lanes = kSliceLanes) {
  static World threads(Tier::kFibers);
  static World regions(Tier::kRegions);
  static World narrow(Tier::kRegions, kNarrowSliceLanes);
  if (tier == Tier::kFibers) return threads;
  return slice_lanes == kSliceLanes ? regions : narrow;
}

Outcome run(Tier tier, unsigned slice_lanes, const std::string& text, const Shape2& shape,
            const std::vector<std::uint32_t>& memory, std::uint32_t n) {
  Outcome outcome;
  outcome.memory = memory;
  World& world = world_of(tier, slice_lanes);
  HostMemory variables;
  auto module = Module::load({text}, "test", *world.compiler, variables);
  if (!module.ok()) {
    ADD_FAILURE() << module.status().to_string();
    return outcome;
  }
  auto attributes = (*module)->kernel("k");
  auto code = (*module)->compile("k");
  if (!attributes.ok() || !code.ok()) {
    ADD_FAILURE() << attributes.status().to_string() << code.status().to_string() << "\n" << text;
    return outcome;
  }
  struct alignas(16) {
    std::uint64_t out;
    std::uint32_t n, padding;
  } params{reinterpret_cast<std::uint64_t>(outcome.memory.data()), n, 0};
  ContextRuntime context;
  LaunchRequest request;
  request.function = code->function;
  request.name = "k";
  request.grid = shape.grid;
  request.block = shape.block;
  request.static_shared_bytes = (*attributes)->static_shared_bytes;
  request.stack_bytes = code->stack_bytes;
  request.params = &params;
  request.param_bytes = (*attributes)->param_bytes;
  request.context = &context;
  if (tier == Tier::kRegions) {
    const FastForm::Code* const fast = code->fast->code();
    EXPECT_NE(fast, nullptr) << "the kernel has no regions";
    if (fast == nullptr) return outcome;
    request.regions = fast->program;
    request.stack_bytes = std::max(request.stack_bytes, fast->stack_bytes);
  }
  outcome.result = world.engine->run(request);
  return outcome;
}

}  // namespace

std::string kernel_text(const std::string& shared, const std::string& body) {
  return ".version 9.0\n.target sm_120\n.address_size 64\n"
         ".visible .entry k(.param .u64 out, .param .u32 n) {\n"
         ".reg .b64 %out, %own, %w<16>; .reg .b32 %n, %x, %i, %r<32>, %f<16>; .reg .pred %p<8>;\n" +
         shared +
         "ld.param.u64 %out, [out]; ld.param.u32 %n, [n];\n"
         "mov.u32 %x, %tid.x; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x;\n"
         "mad.lo.s32 %i, %r0, %r1, %x; mul.wide.s32 %own, %i, 4; add.s64 %own, %own, %out;\n" +
         body + "\nret;\n}\n";
}

Outcome run_as_threads(const std::string& text, const Shape2& shape,
                       const std::vector<std::uint32_t>& memory, std::uint32_t n) {
  return run(Tier::kFibers, kSliceLanes, text, shape, memory, n);
}

Outcome run_as_regions(const std::string& text, const Shape2& shape,
                       const std::vector<std::uint32_t>& memory, std::uint32_t n,
                       unsigned slice_lanes) {
  return run(Tier::kRegions, slice_lanes, text, shape, memory, n);
}

std::vector<std::uint32_t> expect_equal(const std::string& text, const Shape2& shape,
                                        std::size_t words, std::uint32_t n) {
  std::vector<std::uint32_t> memory(words);
  for (std::size_t i = 0; i < words; ++i) memory[i] = static_cast<std::uint32_t>(i * 2654435761u);
  const Outcome threads = run_as_threads(text, shape, memory, n);
  EXPECT_EQ(threads.result.code, kGridOk) << threads.result.message;
  EXPECT_NE(threads.memory, memory) << "the kernel did nothing";
  for (const unsigned lanes : {kSliceLanes, kNarrowSliceLanes}) {
    const Outcome regions = run_as_regions(text, shape, memory, n, lanes);
    EXPECT_EQ(regions.result.code, kGridOk) << regions.result.message;
    std::size_t different = 0;
    for (std::size_t i = 0; i < words; ++i) {
      if (threads.memory[i] == regions.memory[i] || ++different > 5) continue;
      ADD_FAILURE() << "word " << i << ": " << regions.memory[i] << " as regions of " << lanes
                    << " lanes, " << threads.memory[i] << " as threads";
    }
  }
  return threads.memory;
}

std::string refusal_of(const std::string& text) {
  HostMemory variables;
  World& world = world_of(Tier::kRegions);
  auto module = Module::load({text}, "test", *world.compiler, variables);
  if (!module.ok()) return module.status().to_string();
  auto code = (*module)->compile("k");
  if (!code.ok()) return code.status().to_string();
  return code->fast->code() == nullptr ? "refused" : "";
}

}  // namespace gpurun::emulated
