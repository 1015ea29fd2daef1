// Kernel harness: builds one kernel of many instructions, so that a table of cases costs one
// compilation.
#include "kernel_harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "emulated/codegen/variant_table.h"
#include "emulated/engine/engine.h"
#include "emulated/jit/compiler.h"
#include "emulated/module/module.h"
#include "emulated/ptx/index.h"
#include "emulated/runtime/context_runtime.h"
#include "tests/unit/emulated/module/host_memory.h"

namespace gpurun::emulated {
namespace {

// A module's first kernel, with the objects that it needs.
struct Loaded {
  HostMemory memory;
  std::unique_ptr<Compiler> compiler;
  std::unique_ptr<Module> module;
  CompiledKernel code;
  const RegionProgram* regions = nullptr;
  std::uint32_t shared_bytes = 0;
};

// Whether kernels run in their fast form if they have one. Tests and expected values are the same.
bool wants_regions() {
  const char* const tier = std::getenv("GPURUN_TEST_TIER");
  return tier != nullptr && std::string_view(tier) == "regions";
}

Status load_kernel(const RuntimeFunctions& runtime, const std::string& text, Loaded* out) {
  CompilerOptions compiler_options;
  compiler_options.tier = wants_regions() ? Tier::kRegions : Tier::kFibers;
  auto compiler = Compiler::create(runtime, compiler_options);
  if (!compiler.ok()) return compiler.status();
  out->compiler = std::move(*compiler);
  auto module = Module::load({text}, "test", *out->compiler, out->memory);
  if (!module.ok()) return module.status();
  out->module = std::move(*module);
  const std::string& name = out->module->kernel_names().at(0);
  auto attributes = out->module->kernel(name);
  if (!attributes.ok()) return attributes.status();
  out->shared_bytes = (*attributes)->static_shared_bytes;
  auto code = out->module->compile(name);
  if (!code.ok()) return code.status();
  out->code = *code;
  const FastForm::Code* const fast = code->fast == nullptr ? nullptr : code->fast->code();
  ++(fast != nullptr ? tier_counts().regions : tier_counts().threads);
  out->regions = fast == nullptr ? nullptr : fast->program;
  if (fast != nullptr) out->code.stack_bytes = std::max(out->code.stack_bytes, fast->stack_bytes);
  return Status();
}

std::string source_register(char letter, unsigned bits) {
  return std::string(", %") + letter + std::to_string(bits);
}

constexpr char kHead[] =
    ".version 9.0\n.target sm_120\n.address_size 64\n"
    ".entry k(.param .u64 in, .param .u64 out) {\n.reg .b64 %in, %out;\n";

// The bytes of a thread's inputs, and of its outputs for each case.
constexpr std::size_t kInputBytes = 24;
constexpr std::size_t kOutputBytes = 8;

// Loads the inputs at %in into registers of every width.
std::string input_text() {
  std::string text;
  for (const char* width : {"16", "32", "64"}) {
    text += std::string(".reg .b") + width + " %a" + width + ", %b" + width + ", %c" + width +
            ", %d" + width + ";\n";
  }
  text += "ld.param.u64 %in, [in];\nld.param.u64 %out, [out];\n";
  return text;
}

std::string load_text() {
  std::string text;
  int offset = 0;
  for (const char letter : {'a', 'b', 'c'}) {
    for (const char* width : {"16", "32", "64"}) {
      text += std::string("ld.b") + width + " %" + letter + width + ", [%in+" +
              std::to_string(offset) + "];\n";
    }
    offset += 8;
  }
  return text;
}

std::string kernel_text(std::span<const InstructionCase> cases) {
  // Each thread has its own inputs and outputs, so that threads that run together differ.
  std::string text = kHead + input_text() +
                     ".reg .pred %a1, %b1, %c1, %d1, %q1; .reg .b32 %i; .reg .b64 %wide;\n"
                     "mov.u32 %i, %tid.x; mul.wide.u32 %wide, %i, " +
                     std::to_string(kInputBytes) +
                     "; add.u64 %in, %in, %wide;\n"
                     "mul.wide.u32 %wide, %i, " +
                     std::to_string(kOutputBytes * cases.size()) +
                     "; add.u64 %out, %out, %wide;\n" + load_text();
  for (const std::string letter : {"a", "b", "c"}) {
    text += "and.b64 %d64, %" + letter + "64, 1; setp.ne.b64 %" + letter + "1, %d64, 0;\n";
  }
  int offset = 0;
  for (const InstructionCase& one : cases) {
    const bool predicate = one.result_bits <= 2;
    const std::string result = predicate ? "64" : std::to_string(one.result_bits);
    text += one.name + (one.result_bits == 2   ? " %d1|%q1"
                        : one.result_bits == 1 ? " %d1"
                                               : " %d" + result);
    char letter = 'a';
    for (unsigned bits : one.source_bits) text += source_register(letter++, bits);
    text += one.tail + ";\n";
    if (predicate) text += "selp.b64 %d64, 1, 0, %d1;\n";
    if (one.result_bits == 2) text += "@%q1 or.b64 %d64, %d64, 2;\n";
    text += "st.b" + result + " [%out+" + std::to_string(offset) + "], %d" + result + ";\n";
    offset += 8;
  }
  return text + "ret;\n}\n";
}

std::uint64_t low_bits(std::uint64_t value, unsigned bits) {
  return bits >= 64 ? value : value & ((std::uint64_t{1} << bits) - 1);
}

// Each thread has 32 bytes of `in` and, for each case, 32 of `out`: two results and its cell.
std::string threads_text(std::span<const ThreadCase> cases, std::size_t threads) {
  std::string text = kHead + input_text() +
                     ".reg .b16 %e16, %v<8>; .reg .b32 %i, %own, %all, %e32, %t<8>;\n"
                     ".reg .b64 %cell, %wide, %e64, %u<8>; .reg .pred %p, %q;\n"
                     ".shared .align 128 .b8 block[64]; .shared .align 128 .b8 cells[" +
                     std::to_string(16 * threads) +
                     "];\n"
                     "mov.u32 %i, %tid.x; mov.u32 %all, block; mov.u32 %own, cells;\n"
                     "mad.lo.u32 %own, %i, 16, %own;\n"
                     "mul.wide.u32 %wide, %i, 32; add.u64 %in, %in, %wide;\n"
                     "add.u64 %out, %out, %wide;\n" +
                     load_text();
  for (const ThreadCase& one : cases) {
    const std::string bits = std::to_string(one.result_bits);
    text += "add.u64 %cell, %out, 16; bar.sync 0;\n";
    for (int i = 0; i < 64; i += 8) text += "st.shared.b64 [%all+" + std::to_string(i) + "], 0;\n";
    text += "st.shared.v2.b64 [%own], {0, 0}; mov.b" + bits + " %d" + bits + ", 0; mov.b" + bits +
            " %e" + bits + ", 0; bar.sync 0;\n" + one.text + "\n" + "st.b" + bits + " [%out], %d" +
            bits + "; st.b" + bits + " [%out+8], %e" + bits + "; add.u64 %out, %out, " +
            std::to_string(32 * threads) + ";\n";
  }
  return text + "ret;\n}\n";
}

// A runnable kernel with a block of a few threads that never wait.
class Runner {
 public:
  Status load(const std::string& text) {
    RuntimeFunctions runtime{};
    runtime.trap = [](ThreadContext*, std::uint32_t) { std::abort(); };
    return load_kernel(runtime, text, &loaded_);
  }
  void run(const void* in, void* out, unsigned threads) {
    alignas(16) const void* params[2] = {in, out};
    BlockContext block{};
    block.params = reinterpret_cast<const std::uint8_t*>(params);
    block.block_dim[0] = threads;
    block.block_dim[1] = block.block_dim[2] = 1;
    ThreadContext thread{};
    thread.block = &block;
    thread.poll_budget = 1 << 30;
    if (loaded_.regions != nullptr && loaded_.regions->cut_count == 0) {
      return run_region(&thread, threads);
    }
    for (unsigned i = 0; i < threads; ++i) {
      thread.thread_id[0] = thread.thread_linear = i;
      loaded_.code.function(&thread);
    }
  }

 private:
  void run_region(ThreadContext* thread, unsigned threads) {
    const std::size_t lanes = (threads + 31) / 32 * 32;
    std::vector<std::uint8_t> local(lanes * loaded_.regions->local_bytes + 64);
    std::vector<std::uint32_t> next(lanes);
    RegionFrame frame{};
    frame.local = local.data() + (64 - reinterpret_cast<std::uintptr_t>(local.data()) % 64) % 64;
    frame.next = next.data();
    frame.capacity = lanes;
    (void)loaded_.regions->functions[0](thread, &frame, 0, threads);
  }

  Loaded loaded_;
};

}  // namespace

namespace {

std::set<std::string>& recorded() {
  static auto* names = new std::set<std::string>;
  return *names;
}

}  // namespace

const std::set<std::string>& recorded_variants() { return recorded(); }

TierCounts& tier_counts() {
  static TierCounts counts;
  return counts;
}

// Records every instruction of a text that ran. The test that wrote the text compares each of its
// results.
void record_text(const std::string& text) {
  if (const char* file = std::getenv("GPURUN_TEST_DUMP_PTX")) {
    std::ofstream(file, std::ios::app) << text << "\n//----\n";
  }
  auto index = ptx::index_module(text);
  ASSERT_TRUE(index.ok()) << index.status().to_string();
  for (const ptx::FunctionRange& range : index->functions) {
    auto function = ptx::parse_function(range);
    ASSERT_TRUE(function.ok()) << function.status().to_string();
    for (const ptx::Statement& statement : function->body) {
      if (statement.label == ptx::kNoIndex) recorded().insert(variant_key(statement.instruction));
    }
  }
}

Status run_kernel(const std::string& text, const void* in, void* out) {
  Runner runner;
  if (Status status = runner.load(text); !status.ok()) return status;
  runner.run(in, out, 1);
  record_text(text);
  return Status();
}

Status run_grid(const std::string& text, GridShape shape, const void* in, void* out) {
  Loaded loaded;
  GPURUN_RETURN_IF_ERROR(load_kernel(runtime_functions(), text, &loaded));
  EngineOptions options;
  options.threads = 2;
  auto engine = Engine::create(options);
  if (!engine.ok()) return engine.status();
  alignas(16) const void* params[2] = {in, out};
  ContextRuntime context;
  LaunchRequest request;
  request.function = loaded.code.function;
  request.name = "k";
  request.grid.x = shape.blocks;
  request.block.x = shape.threads;
  request.static_shared_bytes = loaded.shared_bytes;
  request.stack_bytes = loaded.code.stack_bytes;
  request.needs_fibers = loaded.code.needs_fibers;
  request.regions = loaded.regions;
  request.params = params;
  request.param_bytes = sizeof params;
  request.context = &context;
  const GridResult result = (*engine)->run(request);
  if (result.code == kGridOk) {
    record_text(text);
    return Status();
  }
  return Status(Code::kInternal, std::to_string(result.code) + ": " + result.message);
}

void check_threads(std::span<const ThreadCase> cases, std::span<const Inputs> inputs) {
  struct ThreadInput {
    Inputs inputs;
    std::uint64_t padding;
  };
  struct Output {
    std::uint64_t d, e, cell[2];
  };
  std::vector<ThreadInput> in;
  for (const Inputs& one : inputs) in.push_back({one, 0});
  std::vector<Output> out(cases.size() * in.size());
  const Status status = run_grid(threads_text(cases, in.size()),
                                 {1, static_cast<unsigned>(in.size())}, in.data(), out.data());
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    for (unsigned thread = 0; thread < in.size(); ++thread) {
      const Output& got = out[i * in.size() + thread];
      const auto want = cases[i].expected(thread);
      const unsigned bits = cases[i].result_bits;
      EXPECT_EQ(std::pair(low_bits(got.d, bits), low_bits(got.e, bits)),
                std::pair(low_bits(want.first, bits), low_bits(want.second, bits)))
          << cases[i].text << "\nthread " << thread;
    }
  }
}

namespace {

bool is_nan(std::uint64_t value, const std::string& type) {
  if (type == "f64") return (value & 0x7fffffffffffffffull) > 0x7ff0000000000000ull;
  if (type == "f32") return (value & 0x7fffffff) > 0x7f800000;
  return type == "f16" ? (value & 0x7fff) > 0x7c00 : (value & 0x7fff) > 0x7f80;
}

double as_double(std::uint64_t value, const std::string& type) {
  if (type == "f64") return std::bit_cast<double>(value);
  if (type == "f32") return std::bit_cast<float>(static_cast<std::uint32_t>(value));
  if (type == "bf16") return std::bit_cast<float>(static_cast<std::uint32_t>(value << 16));
  return static_cast<double>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(value)));
}

bool agrees_scalar(std::uint64_t got, std::uint64_t want, const std::string& type,
                   const InstructionCase& one) {
  if (got == want || (is_nan(got, type) && is_nan(want, type))) return true;
  if (one.tolerance == 0) return false;
  const double exact = as_double(want, type);
  return std::fabs(as_double(got, type) - exact) <=
         one.tolerance * std::max(std::fabs(exact), one.floor);
}

bool agrees(std::uint64_t got, std::uint64_t want, const InstructionCase& one) {
  if (one.result_type.empty()) return got == want;
  const std::size_t packed = one.result_type.find("x2");
  if (packed == std::string::npos) return agrees_scalar(got, want, one.result_type, one);
  const std::string scalar = one.result_type.substr(0, packed);
  const unsigned half = one.result_bits / 2;
  return agrees_scalar(low_bits(got, half), low_bits(want, half), scalar, one) &&
         agrees_scalar(got >> half, want >> half, scalar, one);
}

// The time of the passes behind regions grows faster than the code, so kernels stay small.
constexpr std::size_t kCasesPerKernel = 40;
constexpr int kDifferencesShown = 5;
constexpr std::size_t kThreadsPerBlock = 1000;

}  // namespace

void check_instructions(std::span<const InstructionCase> cases, std::span<const Inputs> inputs) {
  ASSERT_FALSE(cases.empty());
  for (std::size_t first = 0; first < cases.size(); first += kCasesPerKernel) {
    const auto some = cases.subspan(first, std::min(kCasesPerKernel, cases.size() - first));
    Runner runner;
    const std::string text = kernel_text(some);
    const Status status = runner.load(text);
    ASSERT_TRUE(status.ok()) << status.to_string();
    record_text(text);
    std::vector<int> shown(some.size(), 0);
    static_assert(sizeof(Inputs) == kInputBytes);
    std::vector<std::uint64_t> out(some.size() * inputs.size(), 0);
    for (std::size_t done = 0; done < inputs.size(); done += kThreadsPerBlock) {
      const auto threads = std::min<std::size_t>(kThreadsPerBlock, inputs.size() - done);
      runner.run(&inputs[done], &out[done * some.size()], static_cast<unsigned>(threads));
    }
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      const Inputs& in = inputs[k];
      for (std::size_t i = 0; i < some.size(); ++i) {
        const InstructionCase& one = some[i];
        const std::uint64_t want = low_bits(one.expected(in.a, in.b, in.c), one.result_bits);
        const std::uint64_t got = low_bits(out[k * some.size() + i], one.result_bits);
        if (agrees(got, want, one) || ++shown[i] > kDifferencesShown) continue;
        ADD_FAILURE() << one.name << std::hex << ": " << got << ", not " << want
                      << ", for a=" << in.a << " b=" << in.b << " c=" << in.c;
      }
    }
  }
}

}  // namespace gpurun::emulated
