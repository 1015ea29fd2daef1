// Loading, and work that is deferred until a kernel is looked up or launched.
#include "emulated/module/module.h"

#include <algorithm>
#include <atomic>

#include "base/log.h"
#include "emulated/jit/compiler.h"
#include "emulated/module/loaded_module.h"
#include "emulated/regions/regions.h"

namespace gpurun::emulated {
namespace {

// Bound of the stack of a function that is called through a pointer. Its size is not known when the
// kernel is launched.
constexpr std::uint32_t kPointerCallStackBytes = 16u << 10;

// A kernel that has run this long is worth a compilation of its fast form, which takes about as
// long for most kernels.
constexpr std::uint64_t kHotNanoseconds = 30'000'000;

// Larger kernels compile for many seconds, which a program that needs both processors would notice.
// They are hot once they have run for a part of that.
constexpr std::uint32_t kHugeInstructions = 20'000;
constexpr std::uint64_t kHotNanosecondsPerInstruction = 100'000;

std::uint64_t hot_nanoseconds(std::uint32_t instructions) {
  return instructions > kHugeInstructions ? instructions * kHotNanosecondsPerInstruction
                                          : kHotNanoseconds;
}

// Larger kernels take seconds to compile as regions.
constexpr std::uint32_t kBackgroundInstructionsMax = 2000;

// Times ten. The toolkits of CUDA 13 write 9.0 and later. A missing feature of an unknown 9.x text
// shows only in its kernels.
constexpr std::uint32_t kPtxVersionMax = 99;

std::uint64_t key_of(const Definition& definition) {
  return std::uint64_t{definition.text} << 32 | definition.index;
}

Status check_usable(const ptx::ModuleIndex& index, std::uint32_t target_max) {
  if (index.version > kPtxVersionMax) {
    return Status::cuda(222,  // CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                        "PTX of version " + std::to_string(index.version / 10) +
                            " is later than this device knows");
  }
  if (index.target > target_max) {
    return Status::cuda(
        218,  // CUDA_ERROR_INVALID_PTX
        "PTX for sm_" + std::to_string(index.target) + ", which is more than this device is");
  }
  return Status();
}

std::uint32_t product(const std::uint32_t (&dimensions)[3]) {
  const std::uint64_t threads = std::uint64_t{dimensions[0]} * dimensions[1] * dimensions[2];
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(threads, kBlockThreadsMax));
}

}  // namespace

Status Module::check_text(std::string_view text, std::uint32_t target_max) {
  const auto index = ptx::index_module(text);
  if (!index.ok()) return Status::cuda(218, index.status().message());  // CUDA_ERROR_INVALID_PTX
  return check_usable(*index, target_max);
}

Result<std::unique_ptr<Module>> Module::load(std::vector<std::string> texts, std::string name,
                                             Compiler& compiler, GlobalMemory& memory,
                                             std::uint32_t target_max) {
  auto module =
      std::make_unique<LoadedModule>(std::move(texts), std::move(name), compiler.backend(), memory);
  GPURUN_RETURN_IF_ERROR(module->initialize(target_max));
  return std::unique_ptr<Module>(std::move(module));
}

LoadedModule::LoadedModule(std::vector<std::string> texts, std::string name,
                           CompilerBackend& backend, GlobalMemory& memory)
    : texts_(std::move(texts)), name_(std::move(name)), backend_(backend), variables_(memory) {}

LoadedModule::~LoadedModule() {
  backend_.background().forget(this);
  for (const auto& [key, record] : records_) {
    backend_.release(record->ready.code);
    backend_.release(record->regions.code);
    backend_.release(record->good.code);
  }
}

std::string LoadedModule::at_module(const std::string& message) const {
  return name_.empty() ? message : name_ + ": " + message;
}

Status LoadedModule::initialize(std::uint32_t target_max) {
  for (const std::string& text : texts_) {
    auto index = ptx::index_module(text);
    if (!index.ok()) return Status(index.status().code(), at_module(index.status().message()));
    if (const Status usable = check_usable(*index, target_max); !usable.ok()) {
      return Status::cuda(usable.cuda_error(), at_module(usable.message()));
    }
    indexes_.push_back(std::move(*index));
  }
  auto table = LinkTable::build(indexes_);
  if (!table.ok()) return Status(table.status().code(), at_module(table.status().message()));
  table_ = std::make_unique<LinkTable>(std::move(*table));
  for (std::uint32_t text = 0; text < indexes_.size(); ++text) {
    first_descriptor_.push_back(descriptor_functions_.size());
    for (std::uint32_t i = 0; i < indexes_[text].functions.size(); ++i) {
      descriptor_functions_.push_back({Definition::Kind::kFunction, text, i});
    }
  }
  descriptors_ = std::make_unique<FunctionDescriptor[]>(descriptor_functions_.size());
  for (std::size_t i = 0; i < descriptor_functions_.size(); ++i) {
    descriptors_[i].module = static_cast<FunctionResolver*>(this);
    descriptors_[i].index = i;
  }
  const Status placed = variables_.place(indexes_, *table_, [this](const Definition& function) {
    return descriptor_address(function);
  });
  if (!placed.ok()) return Status(placed.code(), at_module(placed.message()));
  collect_names();
  return Status();
}

void LoadedModule::collect_names() {
  for (std::uint32_t text = 0; text < indexes_.size(); ++text) {
    for (std::uint32_t i = 0; i < indexes_[text].functions.size(); ++i) {
      const ptx::FunctionRange& range = indexes_[text].functions[i];
      const Definition own{Definition::Kind::kFunction, text, i};
      if (!range.entry || !(table_->find_shared_name(range.name) == own)) continue;
      kernel_names_.emplace_back(range.name);
    }
    for (std::uint32_t i = 0; i < indexes_[text].variables.size(); ++i) {
      const ptx::Variable& variable = indexes_[text].variables[i];
      const Definition own{Definition::Kind::kVariable, text, i};
      if (variables_.address(own) != 0 && table_->find(text, variable.name) == own) {
        global_names_.emplace_back(variable.name);
      }
    }
  }
}

std::uint64_t LoadedModule::descriptor_address(const Definition& function) const {
  const std::size_t index = first_descriptor_[function.text] + function.index;
  return reinterpret_cast<std::uint64_t>(&descriptors_[index]);
}

Result<GlobalVariable> LoadedModule::global(std::string_view name) const {
  Definition definition = table_->find_shared_name(name);
  // The runtime also looks up variables of internal linkage.
  for (std::uint32_t text = 0; text < indexes_.size(); ++text) {
    if (definition.kind != Definition::Kind::kNone) break;
    definition = table_->find(text, name);
  }
  const std::uint64_t address = variables_.address(definition);
  if (address == 0) {
    return Status(Code::kInvalidArgument, at_module("no variable " + std::string(name)));
  }
  const ptx::Variable& variable = table_->variable(definition);
  GlobalVariable out;
  out.address = address;
  out.bytes = variable.byte_size();
  out.constant = variable.space == ptx::Space::kConst;
  out.managed = variable.managed;
  return out;
}

// Kernels -----------------------------------------------------------------------------------------

LoadedModule::Record& LoadedModule::record(const Definition& definition) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<Record>& record = records_[key_of(definition)];
  if (record == nullptr) {
    record = std::make_unique<Record>();
    record->definition = definition;
    record->module = this;
  }
  return *record;
}

LoadedModule::Record* LoadedModule::kernel_record(std::string_view name) {
  const Definition definition = table_->find_shared_name(name);
  if (definition.kind != Definition::Kind::kFunction || !table_->function(definition).entry) {
    return nullptr;
  }
  return &record(definition);
}

Result<std::vector<Definition>> LoadedModule::shared_of_functions() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (shared_known_) return shared_of_functions_;
  for (const Definition& definition : descriptor_functions_) {
    const ptx::FunctionRange& range = table_->function(definition);
    if (range.entry || range.declaration) continue;
    GPURUN_RETURN_IF_ERROR(collect_shared(*table_, definition, shared_of_functions_));
  }
  shared_known_ = true;
  return shared_of_functions_;
}

Result<std::unique_ptr<Unit>> LoadedModule::prepare(Record& record) {
  if (!record.failure.ok()) return record.failure;
  auto unit = Unit::build(*this, record.definition);
  if (!unit.ok()) {
    // A body that cannot be parsed is handled like one with an unknown instruction.
    record.failure = Status(Code::kRefused, at_module(unit.status().message()));
    return record.failure;
  }
  if (!record.prepared) fill_attributes(record, **unit);
  record.prepared = true;
  return unit;
}

void LoadedModule::fill_attributes(Record& record, const Unit& unit) const {
  const ptx::Function& function = unit.root();
  KernelAttributes& out = record.attributes;
  const std::vector<std::uint32_t> offsets =
      parameter_offsets(function.signature.parameters, &out.param_bytes);
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const std::uint64_t bytes = function.signature.parameters[i].byte_size();
    out.parameters.push_back({offsets[i], static_cast<std::uint32_t>(bytes)});
  }
  out.static_shared_bytes = unit.shared_bytes();
  out.uses_dynamic_shared = unit.uses_dynamic_shared();
  out.local_bytes = unit.local_bytes();
  out.const_bytes = variables_.const_bytes();
  std::copy(std::begin(function.required_block), std::end(function.required_block),
            std::begin(out.required_block));
  std::copy(std::begin(function.max_block), std::end(function.max_block),
            std::begin(out.max_block));
  std::copy(std::begin(function.required_cluster), std::end(function.required_cluster),
            std::begin(out.required_cluster));
  out.min_blocks_per_sm = function.min_blocks_per_sm;
  out.of_tiles = function.of_tiles;
  if (function.max_block[0] != 0) out.max_threads = product(function.max_block);
  if (function.required_block[0] != 0) out.max_threads = product(function.required_block);
  const ptx::ModuleIndex& index = indexes_[record.definition.text];
  out.ptx_target = index.target;
  out.ptx_version = index.version;
}

Status LoadedModule::compile_record(Record& record, std::uint64_t threads) {
  if (record.compiled) return Status();
  auto prepared = prepare(record);
  if (!prepared.ok()) return prepared.status();
  const Unit& unit = **prepared;
  const std::string cache_text = unit.cache_text();
  const CodeRequest request{&unit.source(), unit.symbols(), cache_text, unit.root().entry, threads};
  auto ready = backend_.make(request);
  if (!ready.ok()) {
    const std::string kernel(table_->name(record.definition));
    record.failure =
        Status(ready.status().code(), at_module(kernel + ": " + ready.status().message()));
    return record.failure;
  }
  record.ready = *ready;
  record.threads_max = backend_.threads_max(*ready, request);
  record.recursive = unit.recursive();
  if (unit.calls_pointers()) record.ready.stack_bytes += kPointerCallStackBytes;
  record.compiled = true;
  if (unit.root().entry) add_fast_form(record, unit, request);
  return Status();
}

void LoadedModule::add_fast_form(Record& record, const Unit& unit, const CodeRequest& request) {
  if (backend_.tier() == Tier::kAuto) {
    if (const auto known = backend_.find_regions(request)) return show_fast_form(record, *known);
  }
  const bool fast = backend_.tier() == Tier::kAuto &&
                    unit.source().instruction_count <= kBackgroundInstructionsMax;
  const bool better = backend_.wants_good(record.ready, request);
  // Called here, because the threads that run the kernel are not the program's, and it might be too
  // late there.
  if ((fast || better) && backend_.prepare_background()) {
    record.hot_nanoseconds.store(hot_nanoseconds(unit.source().instruction_count),
                                 std::memory_order_relaxed);
    record.may_be_fast.store(fast, std::memory_order_relaxed);
    record.may_be_better.store(better, std::memory_order_relaxed);
  }
  if (backend_.tier() != Tier::kRegions) return;
  // No launch has been seen yet. .reqntid may give the block size.
  const std::uint32_t row = record.attributes.required_block[0];
  const unsigned lanes = row != 0 ? slice_lanes_for(row) : backend_.slice_lanes();
  Result<ReadyRegions> made = Status(Code::kInternal, "not compiled");
  const Status ran =
      run_on_large_stack([&] { made = backend_.make_regions(request, lanes, nullptr); });
  if (ran.ok() && made.ok()) return show_fast_form(record, *made);
  GPURUN_LOG(kInfo, "%s",
             at_module(std::string(table_->name(record.definition)) +
                       " runs as threads: " + made.status().message())
                 .c_str());
}

void LoadedModule::show_fast_form(Record& record, const ReadyRegions& regions) {
  record.regions = regions;
  record.fast_code = {regions.program, regions.stack_bytes};
  record.asked.store(true, std::memory_order_relaxed);
  record.show();
}

void LoadedModule::note_time(Record& record, std::chrono::nanoseconds time,
                             std::uint32_t row_threads) {
  if (!record.may_be_fast.load(std::memory_order_relaxed) &&
      !record.may_be_better.load(std::memory_order_relaxed)) {
    return;
  }
  if (record.asked.load(std::memory_order_relaxed)) return;
  const auto spent = static_cast<std::uint64_t>(time.count());
  if (record.nanoseconds.fetch_add(spent, std::memory_order_relaxed) + spent <
      record.hot_nanoseconds.load(std::memory_order_relaxed)) {
    return;
  }
  if (record.asked.exchange(true, std::memory_order_relaxed)) return;
  const unsigned lanes = slice_lanes_for(row_threads);
  if (!backend_.background().add(this, [this, &record, lanes](BackgroundWork::Job& job) {
        improve(record, lanes, job);
      })) {
    record.asked.store(false, std::memory_order_relaxed);
  }
}

// Does not touch what the record's mutex guards, because launches continue meanwhile.
void LoadedModule::improve(Record& record, unsigned slice_lanes, BackgroundWork::Job& job) {
  auto unit = Unit::build(*this, record.definition);
  if (!unit.ok()) return;  // It was compiled before, so this does not happen.
  const std::string cache_text = (*unit)->cache_text();
  const CodeRequest request{&(*unit)->source(), (*unit)->symbols(), cache_text};
  if (record.may_be_fast.load(std::memory_order_relaxed)) {
    auto made = backend_.make_regions(request, slice_lanes, &job);
    if (!job.attach()) return;
    if (made.ok()) return show_fast_form(record, *made);
    GPURUN_LOG(kDebug, "%s",
               at_module(std::string(table_->name(record.definition)) +
                         " runs as threads: " + made.status().message())
                   .c_str());
  }
  if (!record.may_be_better.load(std::memory_order_relaxed)) return;
  if (record.good_claimed.exchange(true)) return;
  auto made = backend_.make_good(request, &job);
  if (!job.attach() || !made.ok()) return;
  show_better(record, *made, **unit);
}

void LoadedModule::replace_now(Record& record) {
  if (record.good_claimed.exchange(true)) return;
  const auto unit = Unit::build(*this, record.definition);
  if (!unit.ok()) return;  // It was compiled before, so this does not happen.
  const std::string cache_text = (*unit)->cache_text();
  const CodeRequest request{&(*unit)->source(), (*unit)->symbols(), cache_text};
  Result<ReadyCode> made = Status(Code::kInternal, "not compiled");
  const Status ran = run_on_large_stack([&] { made = backend_.make_good(request, nullptr); });
  if (ran.ok() && made.ok()) show_better(record, *made, **unit);
}

void LoadedModule::show_better(Record& record, const ReadyCode& good, const Unit& unit) {
  record.good = good;
  record.better_code.function = reinterpret_cast<KernelFunction>(good.code.entry);
  record.better_code.stack_bytes =
      good.stack_bytes + (unit.calls_pointers() ? kPointerCallStackBytes : 0);
  record.better_code.needs_fibers = good.needs_fibers;
  record.show_better();
}

Result<const KernelAttributes*> LoadedModule::kernel(std::string_view name) {
  Record* record = kernel_record(name);
  if (record == nullptr) {
    return Status(Code::kInvalidArgument, at_module("no kernel " + std::string(name)));
  }
  const std::lock_guard<std::mutex> lock(record->mutex);
  if (!record->prepared) {
    if (const auto unit = prepare(*record); !unit.ok()) return unit.status();
  }
  return static_cast<const KernelAttributes*>(&record->attributes);
}

Result<CompiledKernel> LoadedModule::compile(std::string_view name, std::uint64_t threads) {
  Record* record = kernel_record(name);
  if (record == nullptr) {
    return Status(Code::kInvalidArgument, at_module("no kernel " + std::string(name)));
  }
  const std::lock_guard<std::mutex> lock(record->mutex);
  GPURUN_RETURN_IF_ERROR(compile_record(*record, threads));
  CompiledKernel out;
  out.function = reinterpret_cast<KernelFunction>(record->ready.code.entry);
  out.stack_bytes = record->ready.stack_bytes;
  out.recursive = record->recursive;
  out.needs_fibers = record->ready.needs_fibers;
  out.fast = record;
  out.threads_max = record->threads_max;
  if (!out.serves(threads)) replace_now(*record);
  return out;
}

Definition LoadedModule::described(std::uint64_t index) const {
  const Definition definition = descriptor_functions_[index];
  if (!table_->function(definition).declaration) return definition;
  return table_->find(definition.text, table_->name(definition));
}

std::string_view LoadedModule::kernel_at(std::uint64_t address) const {
  const std::uint64_t offset = address - reinterpret_cast<std::uint64_t>(descriptors_.get());
  const std::uint64_t index = offset / sizeof(FunctionDescriptor);
  if (offset % sizeof(FunctionDescriptor) != 0 || index >= descriptor_functions_.size()) return {};
  const Definition definition = described(index);
  if (definition.kind != Definition::Kind::kFunction) return {};
  const ptx::FunctionRange& function = table_->function(definition);
  return function.entry ? function.name : std::string_view();
}

Result<void*> LoadedModule::resolve(std::uint64_t index) {
  if (index >= descriptor_functions_.size()) {
    return Status(Code::kInvalidArgument, at_module("a call through a broken function pointer"));
  }
  const Definition definition = described(index);
  if (definition.kind != Definition::Kind::kFunction) {
    return Status(Code::kRefused, at_module("a call of a function that is only declared"));
  }
  Record& found = record(definition);
  const std::lock_guard<std::mutex> lock(found.mutex);
  Status compiled;
  GPURUN_RETURN_IF_ERROR(run_on_large_stack([&] { compiled = compile_record(found, kAnyLaunch); }));
  GPURUN_RETURN_IF_ERROR(compiled);
  std::atomic_ref<void*>(descriptors_[index].code)
      .store(found.ready.code.entry, std::memory_order_release);
  return found.ready.code.entry;
}

}  // namespace gpurun::emulated
