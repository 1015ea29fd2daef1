// LoadedModule: the only implementation of Module.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "emulated/jit/backend.h"
#include "emulated/module/link_table.h"
#include "emulated/module/module.h"
#include "emulated/module/unit.h"
#include "emulated/module/variables.h"

namespace gpurun::emulated {

class LoadedModule final : public Module, public UnitContext, public FunctionResolver {
 public:
  LoadedModule(std::vector<std::string> texts, std::string name, CompilerBackend& backend,
               GlobalMemory& memory);
  ~LoadedModule() override;

  Status initialize(std::uint32_t target_max);

  const std::vector<std::string>& kernel_names() const override { return kernel_names_; }
  const std::vector<std::string>& global_names() const override { return global_names_; }
  Result<const KernelAttributes*> kernel(std::string_view name) override;
  Result<CompiledKernel> compile(std::string_view name, std::uint64_t threads) override;
  std::string_view kernel_at(std::uint64_t address) const override;
  Result<GlobalVariable> global(std::string_view name) const override;

  const LinkTable& table() const override { return *table_; }
  std::size_t text_count() const override { return indexes_.size(); }
  std::uint64_t variable_address(const Definition& definition) const override {
    return variables_.address(definition);
  }
  std::uint64_t descriptor_address(const Definition& function) const override;
  Result<std::vector<Definition>> shared_of_functions() override;

  Result<void*> resolve(std::uint64_t index) override;
  const RuntimeFunctions& runtime() const override { return backend_.runtime(); }

 private:
  // One kernel, or one function that is called through a pointer. It keeps results, including
  // failures. It does not keep the parsed text, because libraries have thousands of kernels.
  struct Record final : FastForm {
    void ran_without(std::chrono::nanoseconds time, std::uint32_t row_threads) override {
      module->note_time(*this, time, row_threads);
    }

    void show() { code_.store(&fast_code, std::memory_order_release); }
    void show_better() { better_.store(&better_code, std::memory_order_release); }

    LoadedModule* module = nullptr;
    std::atomic<std::uint64_t> nanoseconds{0};      // Run time without the fast form.
    std::atomic<std::uint64_t> hot_nanoseconds{0};  // That much asks for it.
    // What the background thread makes of the kernel when it is hot.
    std::atomic<bool> may_be_fast{false};
    std::atomic<bool> may_be_better{false};
    std::atomic<bool> asked{false};
    ReadyRegions regions;  // Written once, before `fast_code` is shown.
    Code fast_code;
    // Set by the thread that makes the good code.
    std::atomic<bool> good_claimed{false};
    ReadyCode good;  // Written once, before `better_code` is shown.
    ThreadedCode better_code;

    std::mutex mutex;  // Held while it is parsed or compiled. Guards what follows.
    Definition definition;
    bool prepared = false;  // `attributes` are known.
    bool compiled = false;
    Status failure;
    KernelAttributes attributes;
    ReadyCode ready;
    std::uint64_t threads_max = kAnyLaunch;  // As CompiledKernel::threads_max.
    bool recursive = false;
  };

  std::string at_module(const std::string& message) const;
  void collect_names();
  Record* kernel_record(std::string_view name);
  Record& record(const Definition& definition);
  // The definition behind descriptor number `index`. For a declaration, it is what that declares.
  Definition described(std::uint64_t index) const;
  // With record.mutex held.
  Result<std::unique_ptr<Unit>> prepare(Record& record);
  Status compile_record(Record& record, std::uint64_t threads);
  // Replaces quick code while a launch waits. Without success the launch has the quick code.
  void replace_now(Record& record);
  // Adds regions to a kernel that has just been compiled, if they can be had at once, and notes
  // what it may get later.
  void add_fast_form(Record& record, const Unit& unit, const CodeRequest& request);
  void show_fast_form(Record& record, const ReadyRegions& regions);
  void note_time(Record& record, std::chrono::nanoseconds time, std::uint32_t row_threads);
  // On the background thread. After a step with `job` the module may be gone.
  void improve(Record& record, unsigned slice_lanes, BackgroundWork::Job& job);
  void show_better(Record& record, const ReadyCode& good, const Unit& unit);
  void fill_attributes(Record& record, const Unit& unit) const;

  const std::vector<std::string> texts_;
  const std::string name_;
  CompilerBackend& backend_;
  std::vector<ptx::ModuleIndex> indexes_;
  std::unique_ptr<LinkTable> table_;
  Variables variables_;
  std::vector<std::string> kernel_names_;
  std::vector<std::string> global_names_;
  std::vector<std::size_t> first_descriptor_;  // By text.
  std::vector<Definition> descriptor_functions_;
  std::unique_ptr<FunctionDescriptor[]> descriptors_;

  std::mutex mutex_;  // Guards records_ and the lazily found shared_of_functions_. Taken last.
  std::unordered_map<std::uint64_t, std::unique_ptr<Record>> records_;
  bool shared_known_ = false;
  std::vector<Definition> shared_of_functions_;
};

}  // namespace gpurun::emulated
