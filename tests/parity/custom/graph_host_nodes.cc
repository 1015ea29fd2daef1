// Graph nodes with work in the client: the nodes that the worker puts in their place
// (docs/adr/0011-graphs-and-host-memory.md). This device runs no graph.
// tests/programs/behaviour/graphs covers the function that a host node calls and the bytes that a
// launch carries.
#include "tests/parity/custom/array_box.h"
#include "tests/parity/custom/box.h"

namespace gpurun::parity {
namespace {

constexpr char kHost[] = "a host node of the worker's own, with an object that ends with the graph";
constexpr char kCopy[] =
    "on the device the same copy without its offsets; from and to host memory a host node of the "
    "worker's own beside a copy of the worker's memory";

Both<CUgraph> new_graph(Trial& t) {
  Both<CUgraph> graph;
  t.bind(graph, t.client(FN(cuGraphCreate), &graph.client, 0u), "cuGraphCreate", "phGraph");
  t.at_end([&t, graph] { (void)t.call_client(FN(cuGraphDestroy), graph); });
  return graph;
}

// The nodes that the new node depends on.
struct Dependencies {
  CUgraphNode client[3] = {}, driver[3] = {};
  std::size_t count;

  Dependencies(Trial& t, const Both<CUgraph>& graph) : count(t.draw(1, 3)) {
    for (std::size_t i = 0; i < count; ++i) {
      Both<CUgraphNode> node;
      t.bind(node, t.client(FN(cuGraphAddEmptyNode), &node.client, graph, nullptr, 0u),
             "cuGraphAddEmptyNode", "phGraphNode");
      client[i] = node.client, driver[i] = node.driver;
    }
  }
};

void nothing(void*) {}

// The copy as a driver would see it: no offsets, pitches only where there are lines, and slices of
// one line each as the lines of one slice. The worker's memory has no gaps.
CUDA_MEMCPY3D expected_copy(const Box& box) {
  const bool flat = box.height == 1;
  CUDA_MEMCPY3D copy{};
  copy.WidthInBytes = box.width;
  copy.Height = flat ? box.depth : box.height;
  copy.Depth = flat ? 1 : box.depth;
  const auto pitch = [&](const Side& side) {
    if (side.lies == Lies::kHost || copy.Height * copy.Depth == 1) return box.width;
    return flat ? side.pitch * side.height : side.pitch;
  };
  const auto height = [&](const Side& side) {
    return side.lies == Lies::kHost || copy.Depth == 1 ? copy.Height : side.height;
  };
  copy.srcMemoryType = box.from.lies == Lies::kHost ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  copy.srcHost = box.from.lies == Lies::kHost ? box.from.base : nullptr;
  if (copy.srcHost == nullptr) {
    copy.srcDevice = reinterpret_cast<CUdeviceptr>(box.from.line(0, 0));
  }
  copy.srcPitch = pitch(box.from), copy.srcHeight = height(box.from);
  copy.dstMemoryType = box.to.lies == Lies::kHost ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  copy.dstHost = box.to.lies == Lies::kHost ? box.to.base : nullptr;
  if (copy.dstHost == nullptr) copy.dstDevice = reinterpret_cast<CUdeviceptr>(box.to.line(0, 0));
  copy.dstPitch = pitch(box.to), copy.dstHeight = height(box.to);
  return copy;
}

// The device's user object that ends with the graph. The worker has made it in `seen`.
CUuserObject object_in(Trial& t, const Seen& seen) {
  Both<CUuserObject> object;
  t.bind(object, seen, "cuUserObjectCreate", "object_out");
  return object.driver;
}

void keep_object(Trial& t, const Both<CUgraph>& graph, CUuserObject object) {
  CUuserObject made = nullptr;
  (void)t.call_direct(FN(cuUserObjectCreate), &made, static_cast<void*>(&made), &nothing, 1u,
                      static_cast<unsigned>(CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  (void)t.call_direct(FN(cuGraphRetainUserObject), graph, object, 1u,
                      static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE));
}

// The nodes that the worker made, in order, with the handles that the device gave out.
struct Made {
  Both<CUgraphNode> host, copy, shown;  // Shown: the program's node.
  CUuserObject object = nullptr;
};

// Adds the node through the client library and compares. `box` nullptr: a host node.
Made add_and_compare(Trial& t, const Both<CUgraph>& graph, const Box* box) {
  const Dependencies behind(t, graph);
  CUDA_HOST_NODE_PARAMS host{&nothing, &t};
  Made made;
  Seen seen;
  if (box == nullptr) {
    seen = t.client(FN(cuGraphAddHostNode), &made.shown.client, graph, behind.client, behind.count,
                    &host);
  } else {
    const CUDA_MEMCPY3D copy = as_3d(*box);
    seen = t.client(FN(cuGraphAddMemcpyNode), &made.shown.client, graph, behind.client,
                    behind.count, &copy, t.context().client);
  }
  const bool in = box != nullptr && box->from.lies == Lies::kHost;
  const bool has_host = box == nullptr || in || box->to.lies == Lies::kHost;
  if (has_host) t.bind(made.host, seen, "cuGraphAddHostNode", "phGraphNode");
  if (has_host) made.object = object_in(t, seen);
  if (box != nullptr) t.bind(made.copy, seen, "cuGraphAddMemcpyNode", "phGraphNode");
  made.shown.driver = box == nullptr || (has_host && !in) ? made.host.driver : made.copy.driver;
  t.expect_same(seen, t.direct_call([&] {
    CUgraphNode node = nullptr;
    const auto add_host = [&](const CUgraphNode* nodes, std::size_t count) {
      (void)t.call_direct(FN(cuGraphAddHostNode), &node, graph, nodes, count, &host);
    };
    const auto add_copy = [&](const CUgraphNode* nodes, std::size_t count) {
      const CUDA_MEMCPY3D copy = expected_copy(*box);
      (void)t.call_direct(FN(cuGraphAddMemcpyNode), &node, graph, nodes, count, &copy,
                          t.context().driver);
    };
    if (box == nullptr || in) {
      add_host(behind.driver, behind.count);
      if (in) add_copy(&made.host.driver, 1);
    } else {
      add_copy(behind.driver, behind.count);
      if (has_host) add_host(&made.copy.driver, 1);
    }
    if (has_host) keep_object(t, graph, made.object);
    return CUDA_SUCCESS;
  }));
  return made;
}

// Another box of the same direction, for an existing node.
Box like(Trial& t, const Box& box) {
  for (;;) {
    Box other(t, t.draw(1, 3));
    if (other.to.lies == box.to.lies && other.from.lies == box.from.lies) return other;
  }
}

Both<CUgraphExec> new_exec(Trial& t, const Both<CUgraph>& graph) {
  Both<CUgraphExec> exec;
  t.bind(exec, t.client(FN(cuGraphInstantiateWithFlags), &exec.client, graph, 0ull),
         "cuGraphInstantiateWithFlags", "phGraphExec");
  t.at_end([&t, exec] { (void)t.call_client(FN(cuGraphExecDestroy), exec); });
  return exec;
}

// For a change in the graph itself the worker first gets the old copy, to restore it if the driver
// refuses half of the change. It releases the old object after the new one exists.
void expect_set(Trial& t, const Seen& seen, const Both<CUgraph>& graph, const Made& made,
                const Box* box) {
  const CUDA_HOST_NODE_PARAMS host{&nothing, &t};
  const bool has_host = made.host.driver != nullptr;
  const Seen direct = t.direct_call([&] {
    if (box != nullptr && has_host) {
      CUDA_MEMCPY3D before{};
      (void)t.call_direct(FN(cuGraphMemcpyNodeGetParams), made.copy, &before);
    }
    if (has_host) keep_object(t, graph, object_in(t, seen));
    if (box != nullptr) {
      const CUDA_MEMCPY3D copy = expected_copy(*box);
      (void)t.call_direct(FN(cuGraphMemcpyNodeSetParams), made.copy, &copy);
    }
    if (has_host) {
      (void)t.call_direct(FN(cuGraphHostNodeSetParams), made.host, &host);
      (void)t.call_direct(FN(cuGraphReleaseUserObject), graph, made.object, 1u);
    }
    return CUDA_SUCCESS;
  });
  t.expect_same(seen, direct);
}

void expect_set_in_exec(Trial& t, const Seen& seen, const Both<CUgraphExec>& exec, const Made& made,
                        const Box* box) {
  const CUDA_HOST_NODE_PARAMS host{&nothing, &t};
  t.expect_same(seen, t.direct_call([&] {
    if (box != nullptr) {
      const CUDA_MEMCPY3D copy = expected_copy(*box);
      (void)t.call_direct(FN(cuGraphExecMemcpyNodeSetParams), exec, made.copy, &copy,
                          t.context().driver);
    }
    if (made.host.driver != nullptr) {
      (void)t.call_direct(FN(cuGraphExecHostNodeSetParams), exec, made.host, &host);
    }
    return CUDA_SUCCESS;
  }));
}

void add_hosts(TrialTable& table) {
  table.translated("cuGraphAddHostNode", kHost,
                   [](Trial& t) { (void)add_and_compare(t, new_graph(t), nullptr); });
  table.translated("cuGraphHostNodeSetParams", kHost, [](Trial& t) {
    const Both<CUgraph> graph = new_graph(t);
    const Made made = add_and_compare(t, graph, nullptr);
    CUDA_HOST_NODE_PARAMS host{&nothing, nullptr};
    expect_set(t, t.client(FN(cuGraphHostNodeSetParams), made.shown, &host), graph, made, nullptr);
  });
  table.translated("cuGraphExecHostNodeSetParams", kHost, [](Trial& t) {
    const Both<CUgraph> graph = new_graph(t);
    const Made made = add_and_compare(t, graph, nullptr);
    const Both<CUgraphExec> exec = new_exec(t, graph);
    CUDA_HOST_NODE_PARAMS host{&nothing, nullptr};
    expect_set_in_exec(t, t.client(FN(cuGraphExecHostNodeSetParams), exec, made.shown, &host), exec,
                       made, nullptr);
  });
}

// The distance to the next line or slice is meaningless for a single one.
CUDA_MEMCPY3D expected_copy(const ArrayCopy& of) {
  CUDA_MEMCPY3D copy = of.whole();
  const auto settle = [&](std::size_t* pitch, std::size_t* height) {
    if (*pitch == 0) return;
    if (of.height * of.depth == 1) *pitch = of.width;
    if (of.depth == 1) *height = of.height;
  };
  settle(&copy.srcPitch, &copy.srcHeight);
  settle(&copy.dstPitch, &copy.dstHeight);
  return copy;
}

// A copy to, from or between arrays. If it is from host memory, the worker's host node precedes it.
void add_array_node(Trial& t, const Both<CUgraph>& graph, In to, In from) {
  const ArrayCopy of(t, to, from, false, t.draw(1, 3));
  const CUDA_MEMCPY3D given = of.for_client(), expected = expected_copy(of);
  CUDA_HOST_NODE_PARAMS host{&nothing, &t};
  CUgraphNode node = nullptr;
  const Seen seen =
      t.client(FN(cuGraphAddMemcpyNode), &node, graph, nullptr, 0u, &given, t.context().client);
  Both<CUgraphNode> before;
  if (from == In::kHost) t.bind(before, seen, "cuGraphAddHostNode", "phGraphNode");
  t.expect_same(seen, t.direct_call([&] {
    CUgraphNode made = nullptr;
    if (from == In::kHost) {
      (void)t.call_direct(FN(cuGraphAddHostNode), &made, graph, nullptr, 0u, &host);
    }
    const bool behind = from == In::kHost;
    (void)t.call_direct(FN(cuGraphAddMemcpyNode), &made, graph, behind ? &before.driver : nullptr,
                        behind ? 1u : 0u, &expected, t.context().driver);
    if (from == In::kHost) keep_object(t, graph, object_in(t, seen));
    return CUDA_SUCCESS;
  }));
}

void add_copies(TrialTable& table) {
  table.translated("cuGraphAddMemcpyNode", kCopy, [](Trial& t) {
    const Box box(t, t.draw(1, 3));
    const Both<CUgraph> graph = new_graph(t);
    (void)add_and_compare(t, graph, &box);
    add_array_node(t, graph, In::kArray, In::kDevice);
    add_array_node(t, graph, In::kDevice, In::kArray);
    add_array_node(t, graph, In::kArray, In::kHost);
  });
  table.translated("cuGraphMemcpyNodeSetParams", kCopy, [](Trial& t) {
    const Both<CUgraph> graph = new_graph(t);
    const Box box(t, t.draw(1, 3));
    const Made made = add_and_compare(t, graph, &box);
    const Box other = like(t, box);
    const CUDA_MEMCPY3D copy = as_3d(other);
    expect_set(t, t.client(FN(cuGraphMemcpyNodeSetParams), made.shown, &copy), graph, made, &other);
  });
  table.translated("cuGraphExecMemcpyNodeSetParams", kCopy, [](Trial& t) {
    const Both<CUgraph> graph = new_graph(t);
    const Box box(t, t.draw(1, 3));
    const Made made = add_and_compare(t, graph, &box);
    const Both<CUgraphExec> exec = new_exec(t, graph);
    const Box other = like(t, box);
    const CUDA_MEMCPY3D copy = as_3d(other);
    expect_set_in_exec(
        t,
        t.client(FN(cuGraphExecMemcpyNodeSetParams), exec, made.shown, &copy, t.context().client),
        exec, made, &other);
  });
}

}  // namespace

void add_graph_host_node_trials(TrialTable& table) {
  add_hosts(table);
  add_copies(table);
  table.add("cuGraphExecUpdate_v2", [](Trial& t) {
    const Both<CUgraph> graph = new_graph(t);
    const Both<CUgraphExec> exec = new_exec(t, graph);
    const Both<CUgraph> other = new_graph(t);
    Both<CUgraphExecUpdateResultInfo> info{};
    t.same(FN(cuGraphExecUpdate_v2), exec, other, out(info));
  });
}

}  // namespace gpurun::parity
