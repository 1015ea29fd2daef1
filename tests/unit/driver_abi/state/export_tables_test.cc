// Export tables: called here as the runtime and the math libraries call them, by UUID and slot
// number. Every program with CUDA's runtime needs them to start.
#include "driver_abi/state/export_tables.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace gpurun::driver_abi {
namespace {

CUcontext context_of(std::uintptr_t number) { return reinterpret_cast<CUcontext>(number); }
void* key_of(std::uintptr_t number) { return reinterpret_cast<void*>(number); }

// The driver behind the tables: one device, and contexts that are numbers.
CUresult state = CUDA_SUCCESS;
thread_local CUcontext current = nullptr;

constexpr ExportTableHost kHost = {
    .ready = [] { return state; },
    .driver_version = [](int* version) { return *version = 13000, CUDA_SUCCESS; },
    .device_count = [](int* count) { return *count = 1, CUDA_SUCCESS; },
    .device_identity =
        [](int ordinal, IntegrityDevice* identity) {
          *identity = {{}, 0, 2, ordinal};
          for (std::uint8_t i = 0; i < 16; ++i) identity->uuid[i] = i;
          return CUDA_SUCCESS;
        },
    .primary_context =
        [](CUdevice device, CUcontext* context) {
          if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
          *context = context_of(0x1000);
          return CUDA_SUCCESS;
        },
    .current_context = [](CUcontext* context) { return *context = current, CUDA_SUCCESS; },
    .context_id =
        [](CUcontext context, unsigned long long* id) {
          *id = reinterpret_cast<std::uintptr_t>(context) + 7;
          return CUDA_SUCCESS;
        },
    .stream_id =
        [](CUcontext, CUstream stream, int per_thread, unsigned long long* id) {
          *id = reinterpret_cast<std::uintptr_t>(stream) * 2 + (per_thread != 0);
          return CUDA_SUCCESS;
        },
    .function_count = [](unsigned* count, CUmodule) { return *count = 2, CUDA_SUCCESS; },
    .functions =
        [](CUfunction* functions, unsigned capacity, CUmodule) {
          for (unsigned i = 0; i < capacity && i < 2; ++i)
            functions[i] = reinterpret_cast<CUfunction>(std::uintptr_t{0x50} + i);
          return CUDA_SUCCESS;
        },
    .load_module =
        [](CUmodule* module, const void* image) {
          *module = static_cast<CUmodule>(const_cast<void*>(image));
          return CUDA_SUCCESS;
        },
    .multiprocessor_groups = nullptr,
};

const void* const* table_named(const char* name) {
  for (unsigned i = 0; i < kExportTableCount; ++i) {
    if (std::strcmp(kExportTables[i].name, name) != 0) continue;
    CUuuid id;
    std::memcpy(id.bytes, kExportTables[i].uuid, 16);
    const void* table = nullptr;
    EXPECT_EQ(get_export_table(&table, &id), CUDA_SUCCESS);
    return static_cast<const void* const*>(table);
  }
  return nullptr;
}

template <typename Signature>
Signature* slot(const char* name, unsigned index) {
  return reinterpret_cast<Signature*>(const_cast<void*>(table_named(name)[index]));
}

auto put() { return slot<CUresult(CUcontext, void*, void*, ContextStorageDestructor)>("CLS", 0); }
auto erase() { return slot<CUresult(CUcontext, void*)>("CLS", 1); }
auto get() { return slot<CUresult(void**, CUcontext, void*)>("CLS", 2); }

class ExportTablesTest : public testing::Test {
 protected:
  void SetUp() override {
    set_export_table_host(&kHost);
    state = CUDA_SUCCESS;
    current = nullptr;
  }
};

TEST_F(ExportTablesTest, TableSizesMeetCallersDemands) {
  for (unsigned i = 0; i < kExportTableCount; ++i) {
    const auto* table = table_named(kExportTables[i].name);
    if (i == kProfiler) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(table[0]), kProfilerBytes);
    } else if (kExportTables[i].has_size) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(table[0]), kExportTables[i].slots * 8U);
    }
    for (unsigned at = 1; at < kExportTables[i].slots - (kExportTables[i].has_size ? 0U : 1U); ++at)
      EXPECT_NE(table[at], nullptr) << kExportTables[i].name << at;
  }
  EXPECT_EQ(table_named("CLS")[3], nullptr);
  EXPECT_GE(reinterpret_cast<std::uintptr_t>(table_named("TOOLS_CB")[0]), 56U);
  EXPECT_GE(reinterpret_cast<std::uintptr_t>(table_named("T6E16")[0]), 56U);
}

// CUPTI 13 asks for a table that is refused, CUPTI 12 calls a slot beyond the size of its table.
// Each does so again and again.
TEST_F(ExportTablesTest, ProfilerIsAnnouncedOnce) {
  testing::internal::CaptureStderr();
  CUuuid id;
  std::memcpy(id.bytes, kSubscriptionTable, 16);
  for (int again = 0; again < 3; ++again) {
    const void* table = &id;
    EXPECT_EQ(get_export_table(&table, &id), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(table, nullptr);
    EXPECT_EQ(slot<CUresult()>("PROFILER", 32)(), CUDA_ERROR_NOT_SUPPORTED);
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said,
            "gpurun: warning: a profiler (CUPTI) gets no events of the device here; its events of "
            "the CPU are complete\n");
}

TEST_F(ExportTablesTest, UnknownTableReturnsErrorAndNull) {
  // The table that every runtime asks for first, and can do without.
  CUuuid id{};
  const unsigned char bytes[16] = {0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e,
                                   0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d, 0xd9};
  std::memcpy(id.bytes, bytes, 16);
  const void* table = &id;
  EXPECT_EQ(get_export_table(&table, &id), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(table, nullptr);
  EXPECT_EQ(get_export_table(nullptr, &id), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get_export_table(&table, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ExportTablesTest, ServesCudartStartupCalls) {
  CUcontext primary = nullptr;
  auto* primary_of = slot<CUresult(CUcontext*, CUdevice)>("CUDART", 2);
  EXPECT_EQ(primary_of(&primary, 0), CUDA_SUCCESS);
  EXPECT_EQ(primary, context_of(0x1000));
  EXPECT_EQ(primary_of(&primary, 9), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(primary_of(nullptr, 0), CUDA_ERROR_INVALID_VALUE);

  for (const unsigned index : {2U, 6U}) {
    std::uint32_t* flags = nullptr;
    std::size_t count = 0;
    slot<void(void**, std::size_t*)>("TOOLS_CB", index)(reinterpret_cast<void**>(&flags), &count);
    ASSERT_GE(count, index == 2 ? 523U : 14U);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(flags[i], 0U);
  }
  std::uint32_t flags = 9;
  void* detail = key_of(5);
  EXPECT_EQ(
      (slot<CUresult(CUcontext, std::uint32_t*, void**)>("CTXCHECK", 2)(primary, &flags, &detail)),
      CUDA_SUCCESS);
  EXPECT_EQ(flags, 0U);
  EXPECT_EQ(detail, key_of(5));
  EXPECT_EQ(slot<std::uint32_t()>("CTXCHECK", 3)(), 0U);

  auto* current_of = slot<CUresult(CUcontext*)>("TOOLS_TLS", 2);
  CUcontext found = nullptr;
  EXPECT_EQ(current_of(&found), CUDA_ERROR_INVALID_CONTEXT);
  current = primary;
  EXPECT_EQ(current_of(&found), CUDA_SUCCESS);
  EXPECT_EQ(found, primary);
}

// The runtime computes the same bytes from what it sees, and otherwise refuses to start.
TEST_F(ExportTablesTest, IntegrityValueMatchesRuntimeInputs) {
  std::uint64_t out[2] = {};
  auto* integrity = slot<CUresult(std::uint32_t, std::uint64_t, std::uint64_t*)>("INTEGRITY", 1);
  ASSERT_EQ(integrity(13002, 1'700'000'000, out), CUDA_SUCCESS);
  IntegrityValue expected({
      .driver_version = 13000,
      .version = 13002,
      .process_id = static_cast<std::uint32_t>(getpid()),
      .thread_id = static_cast<std::uint32_t>(pthread_self()),
      .cudart_table = reinterpret_cast<std::uintptr_t>(table_named("CUDART")),
      .integrity_table = reinterpret_cast<std::uintptr_t>(table_named("INTEGRITY")),
      .integrity_function = reinterpret_cast<std::uintptr_t>(table_named("INTEGRITY")[1]),
      .unix_seconds = 1'700'000'000,
  });
  IntegrityDevice device{};
  ASSERT_EQ(kHost.device_identity(0, &device), CUDA_SUCCESS);
  expected.add(device);
  const Md2Digest digest = expected.finish();
  EXPECT_EQ(std::memcmp(out, digest.data(), 16), 0);

  ASSERT_EQ(integrity(13000, 1, out), CUDA_SUCCESS);
  EXPECT_EQ(out[0], 0x3341181c03cb675cU);
}

TEST_F(ExportTablesTest, StorageIsKeyedByContextAndKey) {
  void* value = nullptr;
  EXPECT_EQ(get()(&value, nullptr, key_of(1)), CUDA_ERROR_INVALID_CONTEXT);
  current = context_of(0x1000);
  EXPECT_EQ(get()(&value, nullptr, key_of(1)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(put()(nullptr, key_of(1), key_of(11), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(put()(context_of(0x2000), key_of(1), key_of(22), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(get()(&value, nullptr, key_of(1)), CUDA_SUCCESS);
  EXPECT_EQ(value, key_of(11));
  EXPECT_EQ(get()(&value, context_of(0x2000), key_of(1)), CUDA_SUCCESS);
  EXPECT_EQ(value, key_of(22));
  EXPECT_EQ(put()(nullptr, key_of(1), key_of(12), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(get()(&value, nullptr, key_of(1)), CUDA_SUCCESS);
  EXPECT_EQ(value, key_of(12));
  EXPECT_EQ(erase()(nullptr, key_of(1)), CUDA_SUCCESS);
  EXPECT_EQ(erase()(nullptr, key_of(1)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(get()(&value, nullptr, key_of(1)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(erase()(context_of(0x2000), key_of(1)), CUDA_SUCCESS);
}

std::vector<std::uintptr_t> destroyed;
void note_destroyed(CUcontext context, void* key, void* value) {
  destroyed.push_back(reinterpret_cast<std::uintptr_t>(key));
  EXPECT_EQ(context, context_of(0x3000));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(value), reinterpret_cast<std::uintptr_t>(key) + 1);
  // A destructor may use the storage, because no lock is held.
  void* gone = nullptr;
  EXPECT_EQ(get()(&gone, context, key), CUDA_ERROR_INVALID_HANDLE);
}

// Without the destructors the runtime keeps state of a destroyed context.
TEST_F(ExportTablesTest, DroppingContextCallsDestructorsInOrder) {
  destroyed.clear();
  for (std::uintptr_t key = 100; key < 400; ++key) {
    ASSERT_EQ(put()(context_of(0x3000), key_of(key), key_of(key + 1), note_destroyed),
              CUDA_SUCCESS);
    ASSERT_EQ(put()(context_of(0x4000), key_of(key), key_of(1), note_destroyed), CUDA_SUCCESS);
  }
  drop_context_storage(context_of(0x3000));
  ASSERT_EQ(destroyed.size(), 300U);
  for (std::size_t i = 0; i < destroyed.size(); ++i) EXPECT_EQ(destroyed[i], 100 + i);
  void* value = nullptr;
  for (std::uintptr_t key = 100; key < 400; ++key) {
    EXPECT_EQ(get()(&value, context_of(0x4000), key_of(key)), CUDA_SUCCESS);
    EXPECT_EQ(erase()(context_of(0x4000), key_of(key)), CUDA_SUCCESS);
  }
}

// Keys are addresses, which collide in any table. Forgetting one must not hide another.
TEST_F(ExportTablesTest, ErasingValuesKeepsOtherValues) {
  std::mt19937_64 random(1);
  std::vector<void*> keys;
  for (int i = 0; i < 2000; ++i) {
    keys.push_back(key_of(random()));
    ASSERT_EQ(put()(context_of(0x3100), keys.back(), keys.back(), nullptr), CUDA_SUCCESS);
  }
  for (std::size_t i = 0; i < keys.size(); i += 2)
    ASSERT_EQ(erase()(context_of(0x3100), keys[i]), CUDA_SUCCESS);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    void* value = nullptr;
    const CUresult expected = i % 2 == 0 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
    ASSERT_EQ(get()(&value, context_of(0x3100), keys[i]), expected) << i;
    ASSERT_EQ(value, i % 2 == 0 ? nullptr : keys[i]);
  }
  drop_context_storage(context_of(0x3100));
}

TEST_F(ExportTablesTest, StorageIsBounded) {
  std::uintptr_t key = 0;
  CUresult result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS && key <= kContextStorageMax)
    result = put()(context_of(0x5000), key_of(++key), nullptr, nullptr);
  EXPECT_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
  drop_context_storage(context_of(0x5000));
  EXPECT_EQ(put()(context_of(0x5000), key_of(1), nullptr, nullptr), CUDA_SUCCESS);
  drop_context_storage(context_of(0x5000));
}

// Every runtime call begins with a read, in any thread, while other threads start and write.
TEST_F(ExportTablesTest, ReadersSeeConsistentValuesDuringWrites) {
  std::atomic<bool> done = false;
  std::atomic<unsigned> wrong = 0;
  ASSERT_EQ(put()(context_of(0x6000), key_of(77), key_of(770), nullptr), CUDA_SUCCESS);
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&done, &wrong] {
      while (!done) {
        void* value = nullptr;
        if (get()(&value, context_of(0x6000), key_of(77)) != CUDA_SUCCESS || value != key_of(770))
          ++wrong;
        if (get()(&value, context_of(0x6000), key_of(5)) == CUDA_SUCCESS && value != key_of(50))
          ++wrong;
      }
    });
  }
  for (unsigned round = 0; round < 2000; ++round) {
    for (std::uintptr_t key = 1; key < 10; ++key)
      put()(context_of(0x6000), key_of(key), key_of(key * 10), nullptr);
    for (std::uintptr_t key = 1; key < 10; ++key) erase()(context_of(0x6000), key_of(key));
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0U);
  drop_context_storage(context_of(0x6000));
}

TEST_F(ExportTablesTest, ServesMathLibraryQueries) {
  current = context_of(0x1000);
  std::uint64_t id = 0;
  EXPECT_EQ((slot<CUresult(CUcontext, std::uint64_t*)>("T2131", 4)(current, &id)), CUDA_SUCCESS);
  EXPECT_EQ(id, 0x1007U);
  void* object = nullptr;
  const auto stream = reinterpret_cast<CUstream>(std::uintptr_t{2});
  EXPECT_EQ(
      (slot<CUresult(CUcontext, CUstream, void**, int)>("T2131", 51)(current, stream, &object, 1)),
      CUDA_SUCCESS);
  EXPECT_EQ((slot<CUresult(CUcontext, void*, std::uint64_t*)>("T2131", 39)(current, object, &id)),
            CUDA_SUCCESS);
  EXPECT_EQ(id, 5U);

  std::vector<CUfunction> seen;
  using Visitor = void (*)(void*, CUfunction, void*, void*);
  const Visitor visit = [](void* user, CUfunction function, void*, void*) {
    static_cast<std::vector<CUfunction>*>(user)->push_back(function);
  };
  EXPECT_EQ((slot<std::uint32_t(CUcontext, CUmodule, Visitor, void*)>("T6E16", 7)(current, nullptr,
                                                                                  visit, &seen)),
            2U);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_NE(seen[0], seen[1]);

  const std::uint8_t* groups = nullptr;
  EXPECT_EQ((slot<CUresult(const std::uint8_t**, std::uint64_t*)>("T1734", 4)(&groups, &id)),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(slot<CUresult()>("T2131", 50)(), CUDA_ERROR_NOT_SUPPORTED) << "an unused slot";
}

TEST_F(ExportTablesTest, UnreadyDriverReturnsNotInitialized) {
  state = CUDA_ERROR_NOT_INITIALIZED;
  void* value = nullptr;
  std::uint64_t out[2] = {};
  EXPECT_EQ(get()(&value, context_of(1), key_of(1)), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(
      (slot<CUresult(std::uint32_t, std::uint64_t, std::uint64_t*)>("INTEGRITY", 1)(13002, 0, out)),
      CUDA_ERROR_NOT_INITIALIZED);
  set_export_table_host(nullptr);
  EXPECT_EQ(get()(&value, context_of(1), key_of(1)), CUDA_ERROR_NOT_INITIALIZED);
}

// CUDA's runtime deletes its values in handlers that run after a preloaded library's fini.
void delete_late() {
  void* value = nullptr;
  const bool works = get()(&value, context_of(0x7000), key_of(1)) == CUDA_SUCCESS &&
                     value == key_of(3) && erase()(context_of(0x7000), key_of(1)) == CUDA_SUCCESS;
  _exit(works ? 42 : 1);
}

TEST_F(ExportTablesTest, StorageWorksInLastExitHandler) {
  EXPECT_EXIT(
      {
        // Registered first, so it runs last.
        std::atexit(delete_late);
        put()(context_of(0x7000), key_of(1), key_of(3), nullptr);
        std::exit(0);
      },
      testing::ExitedWithCode(42), "");
}

// One process may hold the library twice (libcuda.so and libcuda.so.1 in different folders).
TEST_F(ExportTablesTest, TwoLibraryCopiesShareNoStorage) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / ("tables" + std::to_string(getpid()));
  fs::create_directories(folder);
  using Get = CUresult(const void**, const CUuuid*);
  using SetHost = void(const ExportTableHost*);
  const void* tables[2] = {};
  CUuuid id;
  std::memcpy(id.bytes, kExportTables[3].uuid, 16);
  for (int i = 0; i < 2; ++i) {
    const fs::path copy = folder / ("copy" + std::to_string(i) + ".so");
    fs::copy_file(GPURUN_TEST_TABLES_LIBRARY, copy);
    void* library = dlopen(copy.c_str(), RTLD_NOW | RTLD_GLOBAL);
    ASSERT_NE(library, nullptr) << dlerror();
    reinterpret_cast<SetHost*>(dlsym(library, "facts_set_host"))(&kHost);
    auto* get_table = reinterpret_cast<Get*>(dlsym(library, "facts_get_table"));
    ASSERT_EQ(get_table(&tables[i], &id), CUDA_SUCCESS);
  }
  ASSERT_NE(tables[0], tables[1]);
  const auto function = [&tables](int copy, unsigned index) {
    return const_cast<void*>(static_cast<const void* const*>(tables[copy])[index]);
  };
  using Put = CUresult(CUcontext, void*, void*, ContextStorageDestructor);
  using Read = CUresult(void**, CUcontext, void*);
  EXPECT_EQ(reinterpret_cast<Put*>(function(0, 0))(context_of(8), key_of(1), key_of(2), nullptr),
            CUDA_SUCCESS);
  void* value = nullptr;
  EXPECT_EQ(reinterpret_cast<Read*>(function(0, 2))(&value, context_of(8), key_of(1)),
            CUDA_SUCCESS);
  EXPECT_EQ(reinterpret_cast<Read*>(function(1, 2))(&value, context_of(8), key_of(1)),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(get()(&value, context_of(8), key_of(1)), CUDA_ERROR_INVALID_HANDLE);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace gpurun::driver_abi
