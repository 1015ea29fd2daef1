// Dispatch: serves every generated row. Unpacks the call, translates the client's handles to the
// driver's, calls the driver through libffi, binds what it created, packs the reply.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "driver_abi/row.h"
#include "protocol/call.h"
#include "server/driver/cuda_driver.h"
#include "server/driver/foreign_call.h"
#include "server/worker/call.h"

namespace gpurun::server {

class Dispatch {
 public:
  // Prepares every row that the generic codec can carry, custom ones included (their handlers may
  // use it). `driver` is borrowed and outlives this.
  static Result<std::unique_ptr<Dispatch>> create(const CudaDriver& driver);
  Dispatch(const Dispatch&) = delete;
  Dispatch& operator=(const Dispatch&) = delete;

  // `function`, of the driver's signature, is called in place of the driver's own where there is
  // one. Before the first run().
  void substitute(std::uint16_t opcode, void* function);

  // What a row's own handler does around the driver's call: before it, with the client's handles in
  // place; after one that succeeded, with the client's handles that came out. The CUresult; what
  // `before` refuses is not called. nullptr: nothing.
  struct Around {
    int (*before)(Call& call, protocol::UnpackedCall& unpacked) = nullptr;
    int (*after)(Call& call, protocol::UnpackedCall& unpacked) = nullptr;
  };
  // A handler for Handlers::generic, by way of the owner of Call::user(). The executor's thread.
  CallOutcome run(Call& call) const { return run(call, Around()); }
  CallOutcome run(Call& call, const Around& around) const;

  // A call that is not run, because of `result`: what nobody hears that it would have created is
  // poisoned, as by run().
  static void refuse(Call& call, int result);

  // The steps of run(), for whoever has no Call (tests): `streams` resolves stream values.
  struct Streams {
    HandleTable::Found (*resolve)(void* user, std::uint64_t client_stream);
    void* user;
  };
  // The CUresult, and, on success, outputs in `unpacked` with the client's handles. The end of a
  // poisoned handle succeeds: nothing is left of it then.
  int issue(const driver_abi::Row& row, protocol::UnpackedCall& unpacked, HandleTable& handles,
            const Streams& streams) const;

 private:
  explicit Dispatch(const CudaDriver& driver) : driver_(driver) {}

  const CudaDriver& driver_;
  std::unordered_map<std::uint16_t, void*> substitutes_;
  std::vector<std::unique_ptr<ForeignCall>> calls_;  // By opcode; nullptr: custom code only.
};

}  // namespace gpurun::server
