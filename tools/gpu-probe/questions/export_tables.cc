// Question: what are the driver's export tables? Sizes, and the results of the few entries that are
// open points. Only entries with a known signature are called.
#include <cstring>

#include "questions/questions.h"

namespace gpurun::probe {
namespace {

struct Table {
  const char* name;
  unsigned char uuid[16];
};

constexpr Table kTables[] = {
    {"F8CF",
     {0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e, 0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d,
      0xd9}},
    {"CUDART",
     {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d,
      0xf9}},
    {"TOOLS_CB",
     {0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a,
      0x66}},
    {"TOOLS_TLS",
     {0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec,
      0xdc}},
    {"CTXCHECK",
     {0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa,
      0x7e}},
    {"INTEGRITY",
     {0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1,
      0xf2}},
    {"T2131",
     {0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8,
      0xf2}},
    {"T6E16",
     {0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99,
      0x1e}},
    {"T1734",
     {0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b,
      0xca}},
    {"DA91",
     {0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3,
      0x28}},
};
constexpr Table kStorage = {"CLS",
                            {0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3,
                             0x55, 0xd8, 0x95, 0x93}};

constexpr const Table& kStreams = kTables[6];  // T2131
constexpr const Table& kGroups = kTables[8];   // T1734

CUresult open(const Driver& driver, const Table& table, const void* const** slots) {
  CUuuid id;
  std::memcpy(id.bytes, table.uuid, sizeof table.uuid);
  const void* found = nullptr;
  const CUresult result = CU(driver, cuGetExportTable)(&found, &id);
  *slots = static_cast<const void* const*>(found);
  return result;
}

template <typename Signature>
Signature* slot(const void* const* table, unsigned index) {
  return reinterpret_cast<Signature*>(const_cast<void*>(table[index]));
}

void ask_storage(const Driver& driver, Answer* answer) {
  const void* const* table = nullptr;
  const CUresult result = open(driver, kStorage, &table);
  if (result != CUDA_SUCCESS || table == nullptr) {
    answer->fact("CLS", Json::result(result));
    return;
  }
  static char key;
  void* value = nullptr;
  auto* put = slot<CUresult(CUcontext, void*, void*, void (*)(CUcontext, void*, void*))>(table, 0);
  auto* erase = slot<CUresult(CUcontext, void*)>(table, 1);
  auto* get = slot<CUresult(void**, CUcontext, void*)>(table, 2);
  answer->fact("CLS.get_of_nothing", Json::result(get(&value, nullptr, &key)));
  answer->fact("CLS.delete_of_nothing", Json::result(erase(nullptr, &key)));
  answer->fact("CLS.put", Json::result(put(nullptr, &key, &key, nullptr)));
  answer->fact("CLS.put_again", Json::result(put(nullptr, &key, &value, nullptr)));
  answer->fact("CLS.get", Json::result(get(&value, nullptr, &key)));
  answer->fact("CLS.put_again_replaces", Json::boolean(value == static_cast<void*>(&value)));
  answer->fact("CLS.delete", Json::result(erase(nullptr, &key)));
  answer->fact("CLS.delete_again", Json::result(erase(nullptr, &key)));
  answer->fact("CLS.slot_3_is_null", Json::boolean(table[3] == nullptr));
}

void ask_groups(const Driver& driver, Answer* answer) {
  const void* const* table = nullptr;
  const CUresult opened = open(driver, kGroups, &table);
  if (opened != CUDA_SUCCESS || table == nullptr) {
    answer->fact("T1734.slot_4", Json::result(opened));
    return;
  }
  const std::uint8_t* map = nullptr;
  std::uint64_t count = 0;
  const CUresult result =
      slot<CUresult(const std::uint8_t**, std::uint64_t*)>(table, 4)(&map, &count);
  std::vector<Json> bytes;
  for (std::uint64_t i = 0; result == CUDA_SUCCESS && map != nullptr && i < count && i < 512; ++i)
    bytes.push_back(Json::integer(map[i]));
  answer->fact("T1734.slot_4",
               Json::object({{"result", Json::result(result)},
                             {"count", Json::integer(static_cast<std::int64_t>(count))},
                             {"bytes", Json::list(bytes)}}));
}

// Identities of contexts and streams, which math libraries ask for. Are they those of the API?
void ask_identities(const Stage& stage, Answer* answer) {
  const Driver& driver = stage.driver;
  const void* const* table = nullptr;
  const CUresult opened = open(driver, kStreams, &table);
  constexpr unsigned kContextId = 4, kStreamId = 39, kStreamObject = 51;
  const bool holds_them = opened == CUDA_SUCCESS && table != nullptr &&
                          reinterpret_cast<std::uintptr_t>(table[0]) / 8 > kStreamObject;
  if (!holds_them) {
    answer->fact("T2131.slot_4", opened == CUDA_SUCCESS
                                     ? Json::text("unanswerable: the table has no slot 51")
                                     : Json::result(opened));
    return;
  }
  unsigned long long named = 0;
  std::uint64_t id = 0;
  CUresult result =
      slot<CUresult(CUcontext, std::uint64_t*)>(table, kContextId)(stage.context, &id);
  CUresult by_name = CU(driver, cuCtxGetId)(stage.context, &named);
  answer->fact("T2131.slot_4", Json::object({{"result", Json::result(result)},
                                             {"cuCtxGetId", Json::result(by_name)},
                                             {"same_id", Json::boolean(id == named)}}));
  const CUstream streams[] = {nullptr, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, stage.stream};
  const char* const names[] = {"default", "legacy", "per_thread", "created"};
  for (unsigned i = 0; i < 4; ++i) {
    void* object = nullptr;
    const CUresult resolved = slot<CUresult(CUcontext, CUstream, void**, int)>(
        table, kStreamObject)(stage.context, streams[i], &object, i == 2 ? 1 : 0);
    result = resolved;
    if (result == CUDA_SUCCESS) {
      result = slot<CUresult(CUcontext, void*, std::uint64_t*)>(table, kStreamId)(stage.context,
                                                                                  object, &id);
    }
    by_name = CU(driver, cuStreamGetId)(streams[i], &named);
    answer->fact(std::string("T2131.slots_51_and_39.") + names[i],
                 Json::object({{"resolved", Json::result(resolved)},
                               {"result", Json::result(result)},
                               {"cuStreamGetId", Json::result(by_name)},
                               {"same_id", Json::boolean(id == named)}}));
  }
}

}  // namespace

void ask_export_tables(const std::string& libcuda, Answer* answer) {
  const Driver driver(libcuda);
  Stage stage(driver, Level::kContext);
  for (const Table& table : kTables) {
    const void* const* slots = nullptr;
    const CUresult result = open(driver, table, &slots);
    if (result != CUDA_SUCCESS || slots == nullptr) {
      answer->fact(table.name, Json::result(result));
      continue;
    }
    const auto bytes = reinterpret_cast<std::uintptr_t>(slots[0]);
    answer->fact(table.name,
                 Json::object({{"bytes", Json::integer(static_cast<std::int64_t>(bytes))},
                               {"slots", Json::integer(static_cast<std::int64_t>(bytes / 8))}}));
  }
  ask_storage(driver, answer);
  ask_groups(driver, answer);
  ask_identities(stage, answer);
}

}  // namespace gpurun::probe
