// Captures: the client decides whether a call is forbidden meanwhile, so the worker captures in the
// mode that forbids nothing. Each side captures its own stream, because a stream cannot capture
// twice.
#include "tests/parity/custom/trial_cuda.h"

namespace gpurun::parity {
namespace {

constexpr char kRelaxed[] = "cuStreamBeginCapture_v2 in the mode that forbids nothing";
constexpr char kQuestion[] =
    "answered in the client while nothing captures, else cuStreamGetCaptureInfo";

CUstreamCaptureMode some_mode(Trial& t) {
  return t.one_of({CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                   CU_STREAM_CAPTURE_MODE_RELAXED});
}

// The stream to capture, and the stream that replaces it in direct calls.
struct Streams {
  Both<CUstream> captured;
  CUstream directly = nullptr;

  explicit Streams(Trial& t)
      : captured(t.per_thread() && t.draw(0, 1) == 0 ? t.default_stream() : t.new_stream()) {
    EXPECT_EQ(t.call_direct(FN(cuStreamCreate), &directly, 0u), CUDA_SUCCESS);
  }
  Seen renamed(const Seen& direct) const {
    return Trial::renamed(direct, directly, captured.driver);
  }
};

// A capture must end before any wait, so both calls are compared together.
template <typename Begin, typename DirectBegin>
void compare(Trial& t, const Streams& streams, Begin begin, DirectBegin direct_begin) {
  Both<CUgraph> graph;
  const Seen seen = t.client_call([&] {
    EXPECT_EQ(begin(), CUDA_SUCCESS);
    return t.call_client(FN(cuStreamEndCapture), streams.captured, &graph.client);
  });
  t.expect_same(seen, streams.renamed(t.direct_call([&] {
    EXPECT_EQ(direct_begin(), CUDA_SUCCESS);
    return t.call_direct(FN(cuStreamEndCapture), streams.directly, &graph.driver);
  })));
  if (seen.result != CUDA_SUCCESS) return;
  t.bind(graph, seen, "cuStreamEndCapture", "phGraph");
  t.same(FN(cuGraphDestroy), graph);
}

// Flags that are right in a capture only.
void add_external_events(TrialTable& table) {
  table.translated("cuEventRecordWithFlags", "without a flag it is cuEventRecord", [](Trial& t) {
    const Both<CUevent> event = t.new_event();
    const Both<CUstream> stream = t.stream();
    t.expect_same(t.client(FN(cuEventRecordWithFlags), event, stream, 0u),
                  t.direct(FN(cuEventRecord), event, stream));
    const Streams streams(t);
    constexpr unsigned kFlag = CU_EVENT_RECORD_EXTERNAL;
    compare(
        t, streams,
        [&] {
          EXPECT_EQ(t.call_client(FN(cuStreamBeginCapture_v2), streams.captured,
                                  CU_STREAM_CAPTURE_MODE_RELAXED),
                    CUDA_SUCCESS);
          return t.call_client(FN(cuEventRecordWithFlags), event, streams.captured, kFlag);
        },
        [&] {
          EXPECT_EQ(t.call_direct(FN(cuStreamBeginCapture_v2), streams.directly,
                                  CU_STREAM_CAPTURE_MODE_RELAXED),
                    CUDA_SUCCESS);
          return t.call_direct(FN(cuEventRecordWithFlags), event, streams.directly, kFlag);
        });
  });
  table.add("cuStreamWaitEvent", [](Trial& t) {
    const Both<CUevent> event = t.new_event();
    t.same(FN(cuStreamWaitEvent), t.stream(), event, unsigned{CU_EVENT_WAIT_DEFAULT});
    const Streams streams(t);
    constexpr unsigned kFlag = CU_EVENT_WAIT_EXTERNAL;
    compare(
        t, streams,
        [&] {
          EXPECT_EQ(t.call_client(FN(cuStreamBeginCapture_v2), streams.captured,
                                  CU_STREAM_CAPTURE_MODE_RELAXED),
                    CUDA_SUCCESS);
          return t.call_client(FN(cuStreamWaitEvent), streams.captured, event, kFlag);
        },
        [&] {
          EXPECT_EQ(t.call_direct(FN(cuStreamBeginCapture_v2), streams.directly,
                                  CU_STREAM_CAPTURE_MODE_RELAXED),
                    CUDA_SUCCESS);
          return t.call_direct(FN(cuStreamWaitEvent), streams.directly, event, kFlag);
        });
  });
}

void add_beginnings(TrialTable& table) {
  table.translated("cuStreamBeginCapture", kRelaxed, [](Trial& t) {
    const Streams streams(t);
    compare(
        t, streams, [&] { return t.call_client(FN(cuStreamBeginCapture), streams.captured); },
        [&] {
          return t.call_direct(FN(cuStreamBeginCapture_v2), streams.directly,
                               CU_STREAM_CAPTURE_MODE_RELAXED);
        });
  });
  table.translated("cuStreamBeginCapture_v2", kRelaxed, [](Trial& t) {
    const Streams streams(t);
    const CUstreamCaptureMode mode = some_mode(t);
    compare(
        t, streams,
        [&] { return t.call_client(FN(cuStreamBeginCapture_v2), streams.captured, mode); },
        [&] {
          return t.call_direct(FN(cuStreamBeginCapture_v2), streams.directly,
                               CU_STREAM_CAPTURE_MODE_RELAXED);
        });
  });
  table.translated("cuStreamBeginCaptureToGraph", "in the mode that forbids nothing", [](Trial& t) {
    const Streams streams(t);
    Both<CUgraph> graph;
    t.bind(graph, t.client(FN(cuGraphCreate), &graph.client, 0u), "cuGraphCreate", "phGraph");
    CUgraphNode client_nodes[3] = {}, driver_nodes[3] = {};
    CUgraphEdgeData edges[3] = {};
    const std::size_t count = t.draw(0, 3);
    for (std::size_t i = 0; i < count; ++i) {
      Both<CUgraphNode> node;
      t.bind(node, t.client(FN(cuGraphAddEmptyNode), &node.client, graph, nullptr, 0u),
             "cuGraphAddEmptyNode", "phGraphNode");
      client_nodes[i] = node.client, driver_nodes[i] = node.driver;
      edges[i].from_port = static_cast<unsigned char>(t.draw(0, 2));
    }
    const CUgraphEdgeData* data = t.draw(0, 1) == 0 ? nullptr : edges;
    const CUstreamCaptureMode mode = some_mode(t);
    const auto begin = [&] {
      return t.call_client(FN(cuStreamBeginCaptureToGraph), streams.captured, graph, client_nodes,
                           data, count, mode);
    };
    compare(t, streams, begin, [&] {
      return t.call_direct(FN(cuStreamBeginCaptureToGraph), streams.directly, graph, driver_nodes,
                           data, count, CU_STREAM_CAPTURE_MODE_RELAXED);
    });
    EXPECT_EQ(t.call_client(FN(cuGraphDestroy), graph), CUDA_SUCCESS);
  });
  table.add("cuStreamEndCapture", [](Trial& t) {
    const Streams streams(t);
    compare(
        t, streams,
        [&] {
          return t.call_client(FN(cuStreamBeginCapture_v2), streams.captured,
                               CU_STREAM_CAPTURE_MODE_RELAXED);
        },
        [&] {
          return t.call_direct(FN(cuStreamBeginCapture_v2), streams.directly,
                               CU_STREAM_CAPTURE_MODE_RELAXED);
        });
  });
}

// A stream that captures or not, and the stream that is asked about: this one or another. The
// captured stream is non-blocking, because a capture of a blocking stream forbids queries of the
// legacy stream (tests/programs/behaviour/capture_modes.cc).
struct Captured {
  Both<CUstream> stream, asked;
  bool capturing;

  explicit Captured(Trial& t)
      : stream(t.new_stream(CU_STREAM_NON_BLOCKING)),
        asked(t.draw(0, 1) == 0 ? stream : t.stream()),
        capturing(t.draw(0, 2) != 0) {
    if (!capturing) return;
    EXPECT_EQ(t.call_client(FN(cuStreamBeginCapture_v2), stream, CU_STREAM_CAPTURE_MODE_RELAXED),
              CUDA_SUCCESS);
    // Completes the posted calls. No call may wait for the context before the capture ends.
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_EQ(t.call_client(FN(cuStreamIsCapturing), stream, &status), CUDA_SUCCESS);
    t.at_end([&t, ended = stream] {
      CUgraph graph = nullptr;
      EXPECT_EQ(t.call_client(FN(cuStreamEndCapture), ended, &graph), CUDA_SUCCESS);
      EXPECT_EQ(t.call_client(FN(cuGraphDestroy), graph), CUDA_SUCCESS);
      EXPECT_EQ(t.call_client(FN(cuStreamDestroy_v2), ended), CUDA_SUCCESS);
    });
  }
};

struct Answer {
  Both<CUstreamCaptureStatus> status;
  Both<cuuint64_t> id;
};

// `ask` makes the call through the client library.
template <typename Ask>
void compare_answers(Trial& t, bool tells_id, Ask ask) {
  const Captured captured(t);
  Answer answer;
  const Seen seen = t.client_call([&] { return ask(captured.asked, answer); }, !captured.capturing);
  if (captured.capturing) {
    t.expect_same(seen, t.direct(FN(cuStreamGetCaptureInfo), captured.asked, &answer.status.driver,
                                 &answer.id.driver));
  } else {
    t.expect_local(seen, CUDA_SUCCESS);
    answer.status.driver = CU_STREAM_CAPTURE_STATUS_NONE;
  }
  t.expect_equal(answer.status);
  if (tells_id && answer.status.driver == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    t.expect_equal(answer.id);
  }
}

void add_questions(TrialTable& table) {
  table.translated("cuStreamIsCapturing", kQuestion, [](Trial& t) {
    compare_answers(t, false, [&](const Both<CUstream>& stream, Answer& answer) {
      return t.call_client(FN(cuStreamIsCapturing), stream, &answer.status.client);
    });
  });
  table.translated("cuStreamGetCaptureInfo", kQuestion, [](Trial& t) {
    compare_answers(t, true, [&](const Both<CUstream>& stream, Answer& answer) {
      return t.call_client(FN(cuStreamGetCaptureInfo), stream, &answer.status.client,
                           &answer.id.client);
    });
  });
  // Graph and nodes are NULL here. tests/programs/behaviour/capture_modes.cc covers them.
  table.translated("cuStreamGetCaptureInfo_v2", kQuestion, [](Trial& t) {
    compare_answers(t, true, [&](const Both<CUstream>& stream, Answer& answer) {
      return t.call_client(FN(cuStreamGetCaptureInfo_v2), stream, &answer.status.client,
                           &answer.id.client, nullptr, nullptr, nullptr);
    });
  });
  table.translated("cuStreamGetCaptureInfo_v3", kQuestion, [](Trial& t) {
    compare_answers(t, true, [&](const Both<CUstream>& stream, Answer& answer) {
      return t.call_client(FN(cuStreamGetCaptureInfo_v3), stream, &answer.status.client,
                           &answer.id.client, nullptr, nullptr, nullptr, nullptr);
    });
  });
}

}  // namespace

void add_capture_trials(TrialTable& table) {
  add_external_events(table);
  add_beginnings(table);
  add_questions(table);
}

}  // namespace gpurun::parity
