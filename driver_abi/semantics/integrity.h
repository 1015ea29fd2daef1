// Integrity: the value by which CUDA's runtime checks that its driver is consistent.
//
// The runtime computes HMAC-MD2 over facts that both sides know: versions, process, thread,
// addresses of two export tables, the time that it passed, and the identity of every device. It
// compares the result with that of slot 1 of the INTEGRITY export table. A difference fails every
// runtime call with 103.
//
// Source: measured with cudart 12.9 and 13.0 to 13.5, every field flipped on its own. MD2 is RFC
// 1319. HMAC is RFC 2104 with MD2's block of 16 bytes. Nothing here is secret or protects a secret.
//
// Pure functions without allocation, safe from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace gpurun::driver_abi {

using Md2Digest = std::array<std::uint8_t, 16>;

// MD2 (RFC 1319), fed in pieces.
class Md2 {
 public:
  void update(ByteView bytes) noexcept;
  Md2Digest finish() noexcept;  // Call it once. The object cannot be used afterwards.

 private:
  void absorb(const std::uint8_t* block) noexcept;

  std::array<std::uint8_t, 48> state_{};
  std::array<std::uint8_t, 16> checksum_{};
  std::array<std::uint8_t, 16> pending_{};
  std::size_t pending_bytes_ = 0;
};

// HMAC-MD2 with a key of one block, fed in pieces.
class HmacMd2 {
 public:
  explicit HmacMd2(const std::array<std::uint8_t, 16>& key) noexcept;
  void update(ByteView bytes) noexcept { inner_.update(bytes); }
  Md2Digest finish() noexcept;  // Call it once. The object cannot be used afterwards.

 private:
  Md2 inner_;
  std::array<std::uint8_t, 16> outer_key_;
};

// The results of cuDeviceGetUuid (v1) and of attributes 50, 33 and 34 for one device. Hashed byte
// by byte.
struct IntegrityDevice {
  std::uint8_t uuid[16];
  std::int32_t pci_domain;
  std::int32_t pci_bus;
  std::int32_t pci_device;
};
static_assert(sizeof(IntegrityDevice) == 28);

// All facts except the devices. Hashed byte by byte.
struct IntegrityFacts {
  std::uint32_t driver_version;  // The result of cuDriverGetVersion: 13000.
  std::uint32_t version;         // Argument: the runtime's version plus 0, 1 or 2.
  std::uint32_t process_id;
  std::uint32_t thread_id;           // The low half of pthread_self().
  std::uint64_t cudart_table;        // Addresses of the export tables CUDART and INTEGRITY
  std::uint64_t integrity_table;     // in this process,
  std::uint64_t integrity_function;  // and of INTEGRITY's slot 1.
  std::uint64_t unix_seconds;        // Argument.
};
static_assert(sizeof(IntegrityFacts) == 48);

// The value, built device by device in ordinal order.
class IntegrityValue {
 public:
  explicit IntegrityValue(const IntegrityFacts& facts) noexcept;
  void add(const IntegrityDevice& device) noexcept { hmac_.update(bytes_of(device)); }
  Md2Digest finish() noexcept;  // Call it once. The object cannot be used afterwards.

 private:
  std::uint32_t version_;
  HmacMd2 hmac_;
};

}  // namespace gpurun::driver_abi
