// Dispatch: the server of every generated row. It unpacks the call, translates the client's handles
// to the driver's, calls the driver through libffi, binds new handles, and packs the reply.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "driver_abi/row.h"
#include "protocol/calls/call.h"
#include "server/driver/cuda_driver.h"
#include "server/driver/foreign_call.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {

class Dispatch {
 public:
  // Prepares every row that the generic codec can carry. It includes custom rows, because their
  // handlers may use it. `driver` is borrowed and outlives this.
  static Result<std::unique_ptr<Dispatch>> create(const CudaDriver& driver);
  Dispatch(const Dispatch&) = delete;
  Dispatch& operator=(const Dispatch&) = delete;

  // `function` has the driver's signature and replaces the driver's own function, if that exists.
  // Call it before the first run().
  void substitute(std::uint16_t opcode, void* function);

  // The work of a row's own handler around the driver call. `before` sees the client's handles.
  // `after` follows a driver call that succeeded and sees the client's handles of the outputs. Both
  // return the CUresult. A failure of `before` prevents the driver call. nullptr: no such work.
  struct Around {
    int (*before)(Call& call, protocol::UnpackedCall& unpacked) = nullptr;
    int (*after)(Call& call, protocol::UnpackedCall& unpacked) = nullptr;
  };
  // A handler for Handlers::generic, by way of the owner of Call::user(). For the executor's
  // thread.
  CallOutcome run(Call& call) const { return run(call, Around()); }
  CallOutcome run(Call& call, const Around& around) const;

  // For a call that is not run because of `result`. As in run(), handles that it would have created
  // are poisoned if the client does not wait for the reply.
  static void refuse(Call& call, int result);

  // The steps of run(), for callers without a Call (tests). `streams` resolves stream values.
  struct Streams {
    HandleTable::Found (*resolve)(void* user, std::uint64_t client_stream);
    void* user;
  };
  // Returns the CUresult. On success the outputs in `unpacked` have the client's handles.
  // Destroying a poisoned handle succeeds, and forgets it.
  int issue(const driver_abi::Row& row, protocol::UnpackedCall& unpacked, HandleTable& handles,
            const Streams& streams) const;

 private:
  explicit Dispatch(const CudaDriver& driver) : driver_(driver) {}

  const CudaDriver& driver_;
  std::unordered_map<std::uint16_t, void*> substitutes_;
  std::vector<std::unique_ptr<ForeignCall>> calls_;  // By opcode. nullptr: custom code only.
};

}  // namespace gpurun::server
