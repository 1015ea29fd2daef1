// One-dimensional copies: between host and device in the record or in pieces, all asynchronous on
// the device's side.
#include <memory>

#include "tests/parity/custom/expected_copies.h"

namespace gpurun::parity {
namespace {

constexpr char kAsynchronous[] = "asynchronous copies of its pieces, in the call's stream";

// Bytes of the program, pageable or pinned, filled.
struct HostBytes {
  explicit HostBytes(Trial& t, std::size_t count) : pageable(t.bytes(count)) {
    place = pageable.data();
    if (t.draw(0, 1) == 0) return;
    EXPECT_EQ(t.call_client(FN(cuMemHostAlloc), &place, count, 0u), CUDA_SUCCESS);
    std::memcpy(place, pageable.data(), count);
    void* const pinned = place;
    t.at_end([&t, pinned] { (void)t.call_client(FN(cuMemFreeHost), pinned); });
  }
  std::vector<unsigned char> pageable;
  void* place = nullptr;
};

// One size that fits a record, sizes around its limits, and some that go as bulk.
std::size_t size_of_copy(Trial& t) {
  switch (t.draw(0, 4)) {
    case 0:
      return t.draw(1, 200);
    case 1:
      return limits::kInlineBytesMax - 1 + t.draw(0, 2);
    case 2:
      return limits::kInlineCopyInBytesMax - 1 + t.draw(0, 2);
    case 3:
      return limits::kBulkChunkBytes - 1 + t.draw(0, 2);
    default:
      return t.draw(limits::kInlineBytesMax, 3 * limits::kBulkChunkBytes);
  }
}

void* at(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

// The call must copy these bytes, whatever the device was asked.
void expect_copied(const void* to, const std::vector<unsigned char>& sent) {
  EXPECT_EQ(std::memcmp(to, sent.data(), sent.size()), 0) << "other bytes have come";
}

std::vector<unsigned char> bytes_at(const void* place, std::size_t count) {
  const auto* bytes = static_cast<const unsigned char*>(place);
  return {bytes, bytes + count};
}

// One copy from `from` to `to`, both drawn.
struct Line {
  Lies to_lies, from_lies;
  void* to = nullptr;
  void* from = nullptr;
  std::size_t bytes = 0;

  Line(Trial& t, Lies to_side, Lies from_side)
      : to_lies(to_side), from_lies(from_side), bytes(size_of_copy(t)) {
    to = place(t, to_lies);
    from = place(t, from_lies);
  }
  CUdeviceptr to_address() const { return reinterpret_cast<CUdeviceptr>(to); }
  CUdeviceptr from_address() const { return reinterpret_cast<CUdeviceptr>(from); }

 private:
  void* place(Trial& t, Lies lies) {
    if (lies == Lies::kDevice) return at(t.memory(bytes));
    host.push_back(std::make_unique<HostBytes>(t, bytes));
    return host.back()->place;
  }
  std::vector<std::unique_ptr<HostBytes>> host;
};

template <typename Call>
void compare(Trial& t, const Line& line, const Both<CUstream>& stream, Call call) {
  const std::vector<unsigned char> sent = bytes_at(line.from, line.bytes);
  const Seen by_client = t.client_call(call);
  expect_copied(line.to, sent);
  std::memset(line.to, 0, line.bytes);
  t.expect_same(by_client, t.direct_call([&] {
    return copy_line(t, line.to_lies, line.to, line.from_lies, line.from, line.bytes, stream);
  }));
  expect_copied(line.to, sent);
}

void add_in(TrialTable& table) {
  table.translated("cuMemcpyHtoD_v2", kAsynchronous, [](Trial& t) {
    const Line line(t, Lies::kDevice, Lies::kHost);
    compare(t, line, t.default_stream(), [&] {
      return t.call_client(FN(cuMemcpyHtoD_v2), line.to_address(), line.from, line.bytes);
    });
  });
  table.translated("cuMemcpyHtoDAsync_v2", kAsynchronous, [](Trial& t) {
    const Line line(t, Lies::kDevice, Lies::kHost);
    const Both<CUstream> stream = t.stream();
    compare(t, line, stream, [&] {
      return t.call_client(FN(cuMemcpyHtoDAsync_v2), line.to_address(), line.from, line.bytes,
                           stream);
    });
  });
}

void add_out(TrialTable& table) {
  table.translated("cuMemcpyDtoH_v2", kAsynchronous, [](Trial& t) {
    const Line line(t, Lies::kHost, Lies::kDevice);
    compare(t, line, t.default_stream(), [&] {
      return t.call_client(FN(cuMemcpyDtoH_v2), line.to, line.from_address(), line.bytes);
    });
  });
  table.translated("cuMemcpyDtoHAsync_v2", kAsynchronous, [](Trial& t) {
    const Line line(t, Lies::kHost, Lies::kDevice);
    const Both<CUstream> stream = t.stream();
    compare(t, line, stream, [&] {
      return t.call_client(FN(cuMemcpyDtoHAsync_v2), line.to, line.from_address(), line.bytes,
                           stream);
    });
  });
}

void add_between(TrialTable& table) {
  table.translated("cuMemcpyDtoD_v2", kAsynchronous, [](Trial& t) {
    const Line line(t, Lies::kDevice, Lies::kDevice);
    compare(t, line, t.default_stream(), [&] {
      return t.call_client(FN(cuMemcpyDtoD_v2), line.to_address(), line.from_address(), line.bytes);
    });
  });
  table.add("cuMemcpyDtoDAsync_v2", [](Trial& t) {
    const Line line(t, Lies::kDevice, Lies::kDevice);
    const Both<CUstream> stream = t.stream();
    compare(t, line, stream, [&] {
      return t.call_client(FN(cuMemcpyDtoDAsync_v2), line.to_address(), line.from_address(),
                           line.bytes, stream);
    });
  });
}

Lies either(Trial& t) { return t.one_of({Lies::kDevice, Lies::kHost}); }

// The client itself copies from host to host, after the stream has completed.
template <typename Call>
void compare_unified(Trial& t, const Both<CUstream>& stream, Call call) {
  const Line line(t, either(t), either(t));
  const auto made = [&] { return call(line); };
  if (line.to_lies != Lies::kHost || line.from_lies != Lies::kHost) {
    return compare(t, line, stream, made);
  }
  const std::vector<unsigned char> sent = bytes_at(line.from, line.bytes);
  t.expect_same(t.client_call(made), t.direct(FN(cuStreamSynchronize), stream));
  expect_copied(line.to, sent);
}

void add_unified(TrialTable& table) {
  const char* const translation =
      "what the two addresses make of it; from host to host the client waits and copies";
  table.translated("cuMemcpy", translation, [](Trial& t) {
    compare_unified(t, t.default_stream(), [&](const Line& line) {
      return t.call_client(FN(cuMemcpy), line.to_address(), line.from_address(), line.bytes);
    });
  });
  table.translated("cuMemcpyAsync", translation, [](Trial& t) {
    const Both<CUstream> stream = t.stream();
    compare_unified(t, stream, [&](const Line& line) {
      return t.call_client(FN(cuMemcpyAsync), line.to_address(), line.from_address(), line.bytes,
                           stream);
    });
  });
}

}  // namespace

void add_copy_trials(TrialTable& table) {
  add_in(table);
  add_out(table);
  add_between(table);
  add_unified(table);
}

}  // namespace gpurun::parity
