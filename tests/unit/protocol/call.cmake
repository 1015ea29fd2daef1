gpurun_test(call_test unit SOURCES call_test.cc LIBRARIES gpurun_protocol_call)
