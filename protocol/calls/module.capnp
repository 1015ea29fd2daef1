# Loading code images and naming kernels: payloads of form raw for cuModuleLoadDataEx,
# cuLibraryLoadData (LoadRequest, LoadReply) and for cuModuleGetFunction, cuLibraryGetKernel,
# cuKernelGetFunction, cuLibraryGetModule (NameRequest, NameReply). protocol/calls/module_calls.h packs.
@0xd4c3f1f7b6a25e90;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("gpurun::protocol::wire");

struct LoadRequest {
  loads @0 :List(ImageLoad);
  # With a bulk transfer: exactly one, whose image the transfer is.
}

struct ImageLoad {
  handle @0 :UInt64;
  # Minted by the client: a module or a library, as the opcode says.
  digest @1 :Data;
  # SHA-256 of the image bundle (protocol/calls/image_bundle.h).
  image @2 :Data;
  # The bundle. Empty: it is in the bulk transfer. Without a transfer the worker has it, or replies
  # `missing`.
  options @3 :List(JitOption);
  infoLogBytes @4 :UInt32;
  errorLogBytes @5 :UInt32;
  # How much of the compiler's logs the program has room for.
}

struct JitOption {
  id @0 :Int32;
  # CUjit_option whose value is a number.
  value @1 :UInt64;
}

struct LoadReply {
  outcomes @0 :List(ImageOutcome);
  # One for each load, in order.
}

struct ImageOutcome {
  result @0 :Int32;
  # CUresult of the driver.
  missing @1 :Bool;
  # The worker has no image of that digest: send it. Nothing was done.
  kept @2 :Bool;
  # The worker keeps it for the life of the session.
  device @3 :Int32;
  # The server's ordinal of the device that the attributes are of.
  complete @4 :Bool;
  # `kernels` names them all.
  kernels @5 :List(Kernel);
  infoLog @6 :Data;
  errorLog @7 :Data;
}

struct Kernel {
  name @0 :Data;
  described @1 :Bool;
  # The fields below are filled in.
  layoutKnown @2 :Bool;
  parameters @3 :List(Parameter);
  attributes @4 :List(Int32);
  # By CUfunction_attribute; as many as the driver answered without a gap.
}

struct Parameter {
  offset @0 :UInt32;
  bytes @1 :UInt32;
}

struct NameRequest {
  owner @0 :UInt64;
  # The module, library or kernel.
  handle @1 :UInt64;
  # Minted by the client for the requested object.
  name @2 :Data;
  # Of the kernel. Empty where the owner alone determines it.
}

struct NameReply {
  kernel @0 :Kernel;
}

struct KernelNode {
  # Form raw of cuGraphAddKernelNode_v2, cuGraphKernelNodeSetParams_v2 and
  # cuGraphExecKernelNodeSetParams_v2.
  graph @0 :UInt64;
  # The graph, or the executable one. 0 where the node alone determines it.
  node @1 :UInt64;
  # Minted by the client for a new one.
  dependencies @2 :List(UInt64);
  context @3 :UInt64;
  # The context in which it runs. 0: the current one.
  launch @4 :Data;
  # LaunchPayload without attributes, then the parameter block (protocol/log/record.h).
}
