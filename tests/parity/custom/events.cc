// Events: the trials leave out the flags that the worker uses for its own events. See recording.cc.
#include "client/early_answers/event_completions.h"
#include "tests/parity/custom/trial_cuda.h"

namespace gpurun::parity {
namespace {

template <typename Function>
void add_question(TrialTable& table, Function asked) {
  table.translated(
      asked.name, "answered in the client for an event whose end it knows", [asked](Trial& t) {
        const Both<CUevent> event = t.new_event();
        t.expect_local(t.client(asked, event), t.direct(asked, event).result);  // Never recorded.
        const Both<CUevent> recorded = t.new_event();
        // The worker reports the first completions unasked
        // (client/early_answers/event_completions.h).
        for (unsigned i = 0; i <= client::EventCompletions::kUnaskedRecords; ++i) {
          t.same(FN(cuEventRecord), recorded, t.stream());
        }
        t.same(asked, recorded);
      });
}

}  // namespace

void add_event_trials(TrialTable& table) {
  table.add("cuEventCreate", [](Trial& t) {
    Both<CUevent> event;
    const Seen seen = t.same(FN(cuEventCreate), out(event), t.one_of({0u, 1u, 6u, 7u}));
    t.bind(event, seen, "cuEventCreate", "phEvent");
    t.same(FN(cuEventRecord), event, t.stream());
  });
  table.add("cuEventDestroy_v2", [](Trial& t) {
    (void)t.new_event();
    const Both<CUevent> event = t.new_event();
    (void)t.new_event();
    t.same(FN(cuEventDestroy_v2), event);
  });
  table.add("cuEventRecord", [](Trial& t) {
    const Both<CUevent> event = t.new_event();
    t.same(FN(cuEventRecord), event, t.stream());
  });
  add_question(table, FN(cuEventQuery));
  add_question(table, FN(cuEventSynchronize));
}

}  // namespace gpurun::parity
