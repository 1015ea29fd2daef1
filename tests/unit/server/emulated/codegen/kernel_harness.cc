// Builds one kernel of many instructions, so that a table of cases costs one compilation.
#include "kernel_harness.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "server/emulated/jit/kernel_jit.h"
#include "server/emulated/ptx/index.h"

namespace gpurun::emulated {
namespace {

// All functions of one text; nothing else has a name.
class TextScope : public LinkScope {
 public:
  Symbol find(std::string_view name) const override {
    for (const ptx::Function& function : functions) {
      if (function.name != name) continue;
      Symbol symbol;
      symbol.kind = Symbol::Kind::kFunction;
      symbol.link_name = "m." + std::string(name);
      symbol.function = &function;
      return symbol;
    }
    return {};
  }
  std::vector<ptx::Function> functions;
};

Result<KernelFunction> compile(KernelJit& jit, const std::string& text) {
  auto index = ptx::index_module(text);
  if (!index.ok()) return index.status();
  TextScope scope;
  for (const ptx::FunctionRange& range : index->functions) {
    auto function = ptx::parse_function(range);
    if (!function.ok()) return function.status();
    scope.functions.push_back(std::move(*function));
  }
  KernelSource source;
  for (const ptx::Function& function : scope.functions) {
    FunctionSource one{&function, &scope, "m." + std::string(function.name)};
    if (function.entry) {
      source.root = one;
    } else {
      source.callees.push_back(one);
    }
  }
  return jit.compile(source);
}

std::string source_register(char letter, unsigned bits) {
  return std::string(", %") + letter + std::to_string(bits);
}

std::string kernel_text(std::span<const InstructionCase> cases) {
  std::string text =
      ".version 8.7\n.target sm_90\n.address_size 64\n.entry k(.param .u64 in, .param .u64 out) {\n"
      ".reg .b64 %in, %out;\n";
  for (const char* width : {"16", "32", "64"}) {
    text += std::string(".reg .b") + width + " %a" + width + ", %b" + width + ", %c" + width +
            ", %d" + width + ";\n";
  }
  text += ".reg .pred %d1;\nld.param.u64 %in, [in];\nld.param.u64 %out, [out];\n";
  int offset = 0;
  for (const char letter : {'a', 'b', 'c'}) {
    for (const char* width : {"16", "32", "64"}) {
      text += std::string("ld.b") + width + " %" + letter + width + ", [%in+" +
              std::to_string(offset) + "];\n";
    }
    offset += 8;
  }
  offset = 0;
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

// A runnable kernel with its one-thread block.
class Runner {
 public:
  Status load(const std::string& text) {
    RuntimeFunctions runtime{};
    runtime.trap = [](ThreadContext*, std::uint32_t) { std::abort(); };
    auto jit = KernelJit::create(runtime);
    if (!jit.ok()) return jit.status();
    jit_ = std::move(*jit);
    auto function = compile(*jit_, text);
    if (!function.ok()) return function.status();
    function_ = *function;
    return Status();
  }
  void run(const void* in, void* out) {
    alignas(16) const void* params[2] = {in, out};
    BlockContext block{};
    block.params = reinterpret_cast<const std::uint8_t*>(params);
    ThreadContext thread{};
    thread.block = &block;
    thread.poll_budget = 1 << 30;
    function_(&thread);
  }

 private:
  std::unique_ptr<KernelJit> jit_;
  KernelFunction function_ = nullptr;
};

}  // namespace

Status run_kernel(const std::string& text, const void* in, void* out) {
  Runner runner;
  if (Status status = runner.load(text); !status.ok()) return status;
  runner.run(in, out);
  return Status();
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
