// Batches of copies: the device sees each copy on its own, in the call's stream.
#include <memory>

#include "tests/parity/custom/expected_copies.h"

namespace gpurun::parity {
namespace {

constexpr char kOneByOne[] = "its copies, each asynchronous, in the call's stream";

// Copies between device memory and the program's pageable memory, with drawn attributes.
struct Batch {
  std::vector<Lies> to_lies, from_lies;
  std::vector<CUdeviceptr> to, from;
  std::vector<std::size_t> bytes, firsts;
  std::vector<CUmemcpyAttributes> attributes;
  bool awaits = false;  // The call returns after device sources are read.

  explicit Batch(Trial& t) : Batch(t, t.draw(1, 5)) {}
  Batch(Trial& t, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      if (i == 0 || t.draw(0, 1) == 0) {
        firsts.push_back(i);
        CUmemcpyAttributes set = {};
        set.srcAccessOrder =
            t.one_of({CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
                      CU_MEMCPY_SRC_ACCESS_ORDER_ANY});
        attributes.push_back(set);
      }
      bytes.push_back(t.draw(1, 2 * limits::kInlineBytesMax));
      from_lies.push_back(t.one_of({Lies::kDevice, Lies::kHost}));
      const bool from_host = from_lies.back() == Lies::kHost;
      to_lies.push_back(from_host ? Lies::kDevice : t.one_of({Lies::kDevice, Lies::kHost}));
      from.push_back(place(t, from_lies.back(), bytes.back()));
      to.push_back(place(t, to_lies.back(), bytes.back()));
      awaits = awaits || (!from_host && attributes.back().srcAccessOrder ==
                                            CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL);
    }
  }
  std::vector<unsigned char> contents() const {
    std::vector<unsigned char> all;
    for (std::size_t i = 0; i < to.size(); ++i) {
      const auto* place = reinterpret_cast<const unsigned char*>(to[i]);
      all.insert(all.end(), place, place + bytes[i]);
    }
    return all;
  }
  void clear() {
    for (std::size_t i = 0; i < to.size(); ++i) {
      std::memset(reinterpret_cast<void*>(to[i]), 0, bytes[i]);
    }
  }

 private:
  CUdeviceptr place(Trial& t, Lies lies, std::size_t count) {
    if (lies == Lies::kDevice) return t.memory(count);
    host_.push_back(std::make_unique<std::vector<unsigned char>>(t.bytes(count)));
    return reinterpret_cast<CUdeviceptr>(host_.back()->data());
  }
  std::vector<std::unique_ptr<std::vector<unsigned char>>> host_;
};

// Whether the client still sends a wait for the batch. It sends none if it waited for the last copy
// itself. That is a copy out, after which the client knows that the stream is idle.
bool is_waited_for(const Batch& batch) {
  return batch.awaits &&
         (batch.to_lies.back() != Lies::kHost || batch.from_lies.back() != Lies::kDevice);
}

// `call(batch, stream)` goes through the client.
template <typename Call>
void compare(Trial& t, Call call) {
  Batch batch(t);
  if (!t.per_thread()) {
    t.expect_local(t.client_call([&] { return call(batch, t.default_stream()); }),
                   CUDA_ERROR_INVALID_VALUE);
  }
  const Both<CUstream> stream = t.per_thread() ? t.default_stream() : t.new_stream();
  batch.clear();
  const Seen by_client = t.client_call([&] { return call(batch, stream); });
  const std::vector<unsigned char> copied = batch.contents();
  batch.clear();
  t.expect_same(by_client, t.direct_call([&] {
    CUresult result = CUDA_SUCCESS;
    for (std::size_t i = 0; i < batch.to.size() && result == CUDA_SUCCESS; ++i) {
      result =
          copy_line(t, batch.to_lies[i], reinterpret_cast<void*>(batch.to[i]), batch.from_lies[i],
                    reinterpret_cast<void*>(batch.from[i]), batch.bytes[i], stream);
    }
    if (result != CUDA_SUCCESS || !is_waited_for(batch)) return result;
    return t.call_direct(FN(cuStreamSynchronize), stream);
  }));
  EXPECT_EQ(copied, batch.contents()) << "other bytes have come";
}

// One copy, in any stream.
void compare_one(Trial& t) {
  Batch batch(t, 1);
  const Both<CUstream> stream = t.stream();
  batch.clear();
  const Seen by_client = t.client_call([&] {
    return t.call_client(FN(cuMemcpyWithAttributesAsync), batch.to[0], batch.from[0],
                         batch.bytes[0], batch.attributes.data(), stream);
  });
  const std::vector<unsigned char> copied = batch.contents();
  batch.clear();
  t.expect_same(by_client, t.direct_call([&] {
    const CUresult result =
        copy_line(t, batch.to_lies[0], reinterpret_cast<void*>(batch.to[0]), batch.from_lies[0],
                  reinterpret_cast<void*>(batch.from[0]), batch.bytes[0], stream);
    if (result != CUDA_SUCCESS || !is_waited_for(batch)) return result;
    return t.call_direct(FN(cuStreamSynchronize), stream);
  }));
  EXPECT_EQ(copied, batch.contents()) << "other bytes have come";
}

}  // namespace

void add_copy_batch_trials(TrialTable& table) {
  table.translated("cuMemcpyBatchAsync", kOneByOne, [](Trial& t) {
    std::size_t failed = 7;
    compare(t, [&](Batch& b, const Both<CUstream>& stream) {
      return t.call_client(FN(cuMemcpyBatchAsync), b.to.data(), b.from.data(), b.bytes.data(),
                           b.to.size(), b.attributes.data(), b.firsts.data(), b.firsts.size(),
                           &failed, stream);
    });
    t.expect_value(failed, SIZE_MAX);
  });
  table.translated("cuMemcpyBatchAsync_v2", kOneByOne, [](Trial& t) {
    compare(t, [&](Batch& b, const Both<CUstream>& stream) {
      return t.call_client(FN(cuMemcpyBatchAsync_v2), b.to.data(), b.from.data(), b.bytes.data(),
                           b.to.size(), b.attributes.data(), b.firsts.data(), b.firsts.size(),
                           stream);
    });
  });
  table.translated("cuMemcpyWithAttributesAsync", kOneByOne, &compare_one);
}

}  // namespace gpurun::parity
