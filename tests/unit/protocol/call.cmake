gpurun_test(call_test unit SOURCES call_test.cc LIBRARIES gpurun_protocol_call)
gpurun_test(module_calls_test unit SOURCES module_calls_test.cc LIBRARIES gpurun_protocol_module)
