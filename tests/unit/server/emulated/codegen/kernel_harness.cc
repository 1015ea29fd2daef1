// Builds one kernel of many instructions, so that a table of cases costs one compilation.
#include "kernel_harness.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "server/emulated/codegen/variant_table.h"
#include "server/emulated/engine/engine.h"
#include "server/emulated/jit/compiler.h"
#include "server/emulated/module/module.h"
#include "server/emulated/runtime/context_runtime.h"
#include "tests/unit/server/emulated/module/host_memory.h"

namespace gpurun::emulated {
namespace {

// A module's first kernel, with what keeps it alive.
struct Loaded {
  HostMemory memory;
  std::unique_ptr<Compiler> compiler;
  std::unique_ptr<Module> module;
  CompiledKernel code;
  std::uint32_t shared_bytes = 0;
};

Status load_kernel(const RuntimeFunctions& runtime, const std::string& text, Loaded* out) {
  auto compiler = Compiler::create(runtime, {});
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
  return Status();
}

std::string source_register(char letter, unsigned bits) {
  return std::string(", %") + letter + std::to_string(bits);
}

constexpr char kHead[] =
    ".version 9.0\n.target sm_120\n.address_size 64\n"
    ".entry k(.param .u64 in, .param .u64 out) {\n.reg .b64 %in, %out;\n";

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
  std::string text = kHead + input_text() + ".reg .pred %d1;\n" + load_text();
  int offset = 0;
  for (const InstructionCase& one : cases) {
    const std::string result = std::to_string(one.result_bits);
    text += one.name + " %d" + result;
    char letter = 'a';
    for (unsigned bits : one.source_bits) text += source_register(letter++, bits);
    text += one.tail + ";\n";
    if (one.result_bits == 1) text += "selp.b64 %d64, 1, 0, %d1;\n";
    text += "st.b" + std::string(one.result_bits == 1 ? "64" : result) + " [%out+" +
            std::to_string(offset) + "], %d" + (one.result_bits == 1 ? "64" : result) + ";\n";
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

// A runnable kernel with its one-thread block.
class Runner {
 public:
  Status load(const std::string& text) {
    RuntimeFunctions runtime{};
    runtime.trap = [](ThreadContext*, std::uint32_t) { std::abort(); };
    return load_kernel(runtime, text, &loaded_);
  }
  void run(const void* in, void* out) {
    alignas(16) const void* params[2] = {in, out};
    BlockContext block{};
    block.params = reinterpret_cast<const std::uint8_t*>(params);
    ThreadContext thread{};
    thread.block = &block;
    thread.poll_budget = 1 << 30;
    loaded_.code.function(&thread);
  }

 private:
  Loaded loaded_;
};

}  // namespace

namespace {

std::set<std::string>& recorded() {
  static auto* names = new std::set<std::string>;
  return *names;
}

}  // namespace

void record_variant(const std::string& canonical_name) { recorded().insert(canonical_name); }

const std::set<std::string>& recorded_variants() { return recorded(); }

void record_instruction(const std::string& text) {
  ptx::Instruction instruction;
  std::string_view name = std::string_view(text).substr(0, text.find_first_of(" ;"));
  std::size_t dot = name.find('.');
  instruction.opcode = name.substr(0, dot);
  while (dot != std::string_view::npos) {
    name.remove_prefix(dot + 1);
    dot = name.find('.');
    instruction.modifiers.push_back(name.substr(0, dot));
  }
  record_variant(canonical_name(instruction));
}

Status run_kernel(const std::string& text, const void* in, void* out) {
  Runner runner;
  if (Status status = runner.load(text); !status.ok()) return status;
  runner.run(in, out);
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
  request.params = params;
  request.param_bytes = sizeof params;
  request.context = &context;
  const GridResult result = (*engine)->run(request);
  if (result.code == kGridOk) return Status();
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

void check_instructions(std::span<const InstructionCase> cases, std::span<const Inputs> inputs) {
  Runner runner;
  const Status status = runner.load(kernel_text(cases));
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (const Inputs& in : inputs) {
    std::vector<std::uint64_t> out(cases.size(), 0);
    runner.run(&in, out.data());
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const std::uint64_t want =
          low_bits(cases[i].expected(in.a, in.b, in.c), cases[i].result_bits);
      EXPECT_EQ(low_bits(out[i], cases[i].result_bits), want)
          << cases[i].name << std::hex << " a=" << in.a << " b=" << in.b << " c=" << in.c;
    }
  }
}

}  // namespace gpurun::emulated
