// Module harness: loads PTX modules and runs their kernels on a real engine.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "emulated/engine/engine.h"
#include "emulated/jit/compiler.h"
#include "emulated/module/module.h"
#include "emulated/runtime/context_runtime.h"
#include "host_memory.h"

namespace gpurun::emulated {

inline constexpr char kHead[] = ".version 8.7\n.target sm_90\n.address_size 64\n";

// A block of kernel parameters, each at its natural alignment.
class Parameters {
 public:
  template <class T>
  Parameters& add(const T& value) {
    end_ = (end_ + alignof(T) - 1) / alignof(T) * alignof(T);
    std::memcpy(reinterpret_cast<char*>(words_) + end_, &value, sizeof value);
    end_ += sizeof value;
    return *this;
  }
  const void* data() const { return words_; }
  std::uint32_t bytes() const { return static_cast<std::uint32_t>(end_); }

 private:
  alignas(16) std::uint64_t words_[64] = {};
  std::size_t end_ = 0;
};

class ModuleTest : public testing::Test {
 protected:
  void SetUp() override { start({}); }

  void start(const CompilerOptions& options) {
    module_.reset();
    auto compiler = Compiler::create(runtime_functions(), options);
    ASSERT_TRUE(compiler.ok()) << compiler.status().to_string();
    compiler_ = std::move(*compiler);
    if (engine_ != nullptr) return;
    EngineOptions engine_options;
    engine_options.threads = 2;
    auto engine = Engine::create(engine_options);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    engine_ = std::move(*engine);
  }

  Status load(std::vector<std::string> texts) {
    for (std::string& text : texts) text = kHead + text;
    return load_whole(std::move(texts));
  }

  Status load_whole(std::vector<std::string> texts) {
    module_.reset();
    auto module = Module::load(std::move(texts), "test", *compiler_, memory_);
    if (!module.ok()) return module.status();
    module_ = std::move(*module);
    return Status();
  }

  GridResult run(const char* kernel, Extent grid, Extent block, const Parameters& parameters,
                 std::uint32_t dynamic_shared = 0) {
    GridResult result;
    result.code = -1;
    const auto attributes = module_->kernel(kernel);
    EXPECT_TRUE(attributes.ok()) << attributes.status().to_string();
    const auto code = module_->compile(kernel, launch_threads_);
    EXPECT_TRUE(code.ok()) << code.status().to_string();
    if (!attributes.ok() || !code.ok()) return result;
    LaunchRequest request;
    const ThreadedCode& threaded = code->threaded();
    request.function = threaded.function;
    request.name = kernel;
    request.grid = grid;
    request.block = block;
    request.static_shared_bytes = (*attributes)->static_shared_bytes;
    request.dynamic_shared_bytes = dynamic_shared;
    request.stack_bytes = threaded.stack_bytes + (code->recursive ? recursion_stack_ : 0);
    request.needs_fibers = threaded.needs_fibers;
    request.params = parameters.data();
    request.param_bytes = (*attributes)->param_bytes;
    EXPECT_LE(parameters.bytes(), (*attributes)->param_bytes);
    request.context = &context_;
    return engine_->run(request);
  }

  std::uint32_t recursion_stack_ = 64u << 10;
  std::uint64_t launch_threads_ = kAnyLaunch;  // As run() tells the compiler.
  HostMemory memory_;
  ContextRuntime context_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Compiler> compiler_;
  std::unique_ptr<Module> module_;
};

}  // namespace gpurun::emulated
