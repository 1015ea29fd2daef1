// The compiler's life and counters, and the thread with a large stack on which it works.
#include "emulated/jit/compiler.h"

#include <pthread.h>

#include <chrono>

#include "base/log.h"
#include "emulated/jit/backend.h"
#include "generator_version.h"

namespace gpurun::emulated {
namespace {

// LLVM recurses over the expressions of long functions.
constexpr std::size_t kCompilerStackBytes = std::size_t{64} << 20;

// Distinguish the cache's entries of one kernel. Regions have slices of a number of lanes.
constexpr char kGoodForm[] = "";
constexpr char kQuickForm[] = "quick";
std::string regions_form(unsigned slice_lanes) { return "regions " + std::to_string(slice_lanes); }

void* run_function(void* function) {
  (*static_cast<const std::function<void()>*>(function))();
  return nullptr;
}

}  // namespace

Status run_on_large_stack(const std::function<void()>& function) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kCompilerStackBytes);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, run_function,
                                   const_cast<std::function<void()>*>(&function));
  pthread_attr_destroy(&attributes);
  if (error != 0) return Status::from_errno(error, "starting a thread to compile");
  pthread_join(thread, nullptr);
  return Status();
}

namespace {

// RuntimeFunctions::resolve_function. Runs on a CUDA thread's stack. No object with a destructor is
// alive when trap() leaves.
void* resolve_function(ThreadContext* thread, void* address) {
  auto* descriptor = static_cast<FunctionDescriptor*>(address);
  auto* resolver = static_cast<FunctionResolver*>(descriptor->module);
  if (resolver == nullptr) return nullptr;
  void* code = nullptr;
  if (auto resolved = resolver->resolve(descriptor->index); resolved.ok()) {
    code = *resolved;
  } else {
    GPURUN_LOG(kWarning, "a function called through a pointer cannot be compiled: %s",
               resolved.status().message().c_str());
  }
  if (code == nullptr) resolver->runtime().trap(thread, 0);
  return code;
}

RuntimeFunctions with_resolver(RuntimeFunctions runtime) {
  runtime.resolve_function = resolve_function;
  return runtime;
}

}  // namespace

CompilerBackend::CompilerBackend(const RuntimeFunctions& runtime, const CompilerOptions& options,
                                 std::unique_ptr<KernelJit> jit, std::unique_ptr<ObjectCache> cache)
    : runtime_(runtime), options_(options), jit_(std::move(jit)), cache_(std::move(cache)) {}

CompilerBackend::~CompilerBackend() = default;

Result<std::unique_ptr<CompilerBackend>> CompilerBackend::create(const RuntimeFunctions& runtime,
                                                                 const CompilerOptions& options) {
  const RuntimeFunctions all = with_resolver(runtime);
  auto jit = KernelJit::create(all);
  if (!jit.ok()) return jit.status();
  std::unique_ptr<ObjectCache> cache;
  if (!options.cache_directory.empty()) {
    auto opened = ObjectCache::open(options.cache_directory, options.cache_bytes_max);
    if (opened.ok()) {
      cache = std::move(*opened);
    } else {
      GPURUN_LOG(kWarning, "compiled kernels are not kept: %s", opened.status().message().c_str());
    }
  }
  return std::unique_ptr<CompilerBackend>(
      new CompilerBackend(all, options, std::move(*jit), std::move(cache)));
}

Result<ReadyCode> CompilerBackend::make(const CodeRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  Result<ReadyCode> result = Status(Code::kInternal, "not compiled");
  GPURUN_RETURN_IF_ERROR(run_on_large_stack([&] { result = make_here(request); }));
  const auto spent = std::chrono::steady_clock::now() - start;
  microseconds_ += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(spent).count());
  if (result.ok()) ++kernels_;
  if (result.ok() && result->quality == CodeQuality::kQuick) ++quick_kernels_;
  return result;
}

CodeQuality CompilerBackend::first_quality(const CodeRequest& request) const {
  const std::uint32_t quick_above =
      request.replaceable ? options_.quick_above_instructions : options_.good_up_to_instructions;
  const bool large = request.source->instruction_count > quick_above;
  const bool few = request.replaceable && options_.tier == Tier::kAuto &&
                   request.launch_threads <= options_.quick_up_to_threads;
  return large || few ? CodeQuality::kQuick : CodeQuality::kGood;
}

std::uint64_t CompilerBackend::threads_max(const ReadyCode& code,
                                           const CodeRequest& request) const {
  const bool large = request.source->instruction_count > options_.quick_above_instructions;
  const bool final = large || code.quality == CodeQuality::kGood;
  return final ? kAnyLaunch : options_.quick_up_to_threads;
}

Result<ReadyCode> CompilerBackend::make_here(const CodeRequest& request) {
  const CodeQuality quality = first_quality(request);
  std::string key;
  if (cache_ != nullptr) {
    key = key_of(request, kGoodForm);
    if (auto ready = find(request, key, CodeQuality::kGood)) return *ready;
    if (quality == CodeQuality::kQuick) {
      key = key_of(request, kQuickForm);
      if (auto ready = find(request, key, quality)) return *ready;
    }
  }
  std::optional<ObjectCache::Turn> turn;
  if (cache_ != nullptr) {
    turn.emplace(cache_->take_turn(
        key, options_.turn_wait_per_instruction * request.source->instruction_count));
    // Another process, or thread, may have compiled it meanwhile.
    if (auto ready = find(request, key, quality)) return *ready;
  }
  auto generated = jit_->generate(*request.source, quality);
  if (!generated.ok()) return generated.status();
  if (cache_ != nullptr) cache_->store(key, *generated);
  return load(*generated, request, quality);
}

std::optional<ReadyCode> CompilerBackend::find(const CodeRequest& request, const std::string& key,
                                               CodeQuality quality) {
  const auto known = cache_->find(key);
  if (!known) return std::nullopt;
  auto ready = load(*known, request, quality);
  if (!ready.ok()) return std::nullopt;  // It is generated again.
  ++cache_hits_;
  return *ready;
}

bool CompilerBackend::wants_good(const ReadyCode& code, const CodeRequest& request) const {
  return code.quality == CodeQuality::kQuick &&
         request.source->instruction_count <= options_.replaced_up_to_instructions;
}

Result<ReadyCode> CompilerBackend::make_good(const CodeRequest& request, BackgroundWork::Job* job) {
  const std::string key = key_of(request, kGoodForm);
  if (cache_ != nullptr) {
    // Another process may have compiled it meanwhile.
    if (const auto known = cache_->find(key)) {
      if (auto ready = load(*known, request, CodeQuality::kGood); ready.ok()) {
        ++replacements_;
        return ready;
      }
    }
  }
  std::optional<BackgroundSteps> steps;
  if (job != nullptr) steps.emplace(BackgroundSteps{job->stop(), [job] { job->detach(); }});
  auto generated = jit_->generate(*request.source, CodeQuality::kGood, steps ? &*steps : nullptr);
  if (!generated.ok()) return generated.status();
  if (cache_ != nullptr) cache_->store(key, *generated);
  if (job != nullptr && !job->attach()) {
    return Status(Code::kUnavailable, "the module was unloaded");
  }
  ++replacements_;
  return load(*generated, request, CodeQuality::kGood);
}

std::string CompilerBackend::key_of(const CodeRequest& request, const std::string& form) const {
  std::string key =
      std::string(kGeneratorVersion) + "\n" + jit_->target_text() + "\n" + form + "\n";
  key.append(request.cache_text);
  return key;
}

std::optional<ReadyRegions> CompilerBackend::find_regions(const CodeRequest& request) {
  if (auto wide = find_regions(request, kSliceLanes)) return wide;
  return find_regions(request, kNarrowSliceLanes);
}

std::optional<ReadyRegions> CompilerBackend::find_regions(const CodeRequest& request,
                                                          unsigned slice_lanes) {
  if (cache_ == nullptr) return std::nullopt;
  const auto known = cache_->find(key_of(request, regions_form(slice_lanes)));
  if (!known) return std::nullopt;
  auto ready = load_regions(*known, request);
  if (!ready.ok()) return std::nullopt;
  return *ready;
}

Result<ReadyRegions> CompilerBackend::make_regions(const CodeRequest& request, unsigned slice_lanes,
                                                   BackgroundWork::Job* job) {
  if (auto known = find_regions(request, slice_lanes)) return *known;
  std::optional<BackgroundSteps> steps;
  if (job != nullptr) steps.emplace(BackgroundSteps{job->stop(), [job] { job->detach(); }});
  auto generated = jit_->generate_regions(*request.source, slice_lanes, steps ? &*steps : nullptr);
  if (!generated.ok()) return generated.status();
  if (cache_ != nullptr) cache_->store(key_of(request, regions_form(slice_lanes)), *generated);
  if (job != nullptr && !job->attach()) {
    return Status(Code::kUnavailable, "the module was unloaded");
  }
  return load_regions(*generated, request);
}

Result<ReadyRegions> CompilerBackend::load_regions(const GeneratedCode& code,
                                                   const CodeRequest& request) {
  auto loaded = jit_->load(code.object, request.symbols);
  if (!loaded.ok()) return loaded.status();
  ++fast_forms_;
  return ReadyRegions{*loaded, static_cast<const RegionProgram*>(loaded->entry), code.stack_bytes};
}

bool CompilerBackend::prepare_background() {
  std::call_once(background_prepared_, [this] {
    Status warm = Status(Code::kInternal, "not compiled");
    const Status ran = run_on_large_stack([&] { warm = jit_->warm_up(); });
    if (!ran.ok() || !warm.ok()) {
      GPURUN_LOG(kWarning, "hot kernels stay as they are: %s",
                 (ran.ok() ? warm : ran).message().c_str());
      return;
    }
    if (options_.before_background) options_.before_background();
    background_possible_ = true;
  });
  return background_possible_;
}

Result<ReadyCode> CompilerBackend::load(const GeneratedCode& code, const CodeRequest& request,
                                        CodeQuality quality) {
  auto loaded = jit_->load(code.object, request.symbols);
  if (!loaded.ok()) return loaded.status();
  return ReadyCode{*loaded, code.stack_bytes, code.needs_fibers, quality};
}

CompilerCounters CompilerBackend::counters() const {
  return {kernels_, cache_hits_, microseconds_ / 1000, fast_forms_, quick_kernels_, replacements_};
}

Compiler::Compiler(std::unique_ptr<CompilerBackend> backend) : backend_(std::move(backend)) {}
Compiler::~Compiler() = default;

Result<std::unique_ptr<Compiler>> Compiler::create(const RuntimeFunctions& runtime,
                                                   const CompilerOptions& options) {
  auto backend = CompilerBackend::create(runtime, options);
  if (!backend.ok()) return backend.status();
  return std::unique_ptr<Compiler>(new Compiler(std::move(*backend)));
}

CompilerCounters Compiler::counters() const { return backend_->counters(); }
void Compiler::stop_background() { backend_->background().stop(); }

}  // namespace gpurun::emulated
