gpurun_test(call_test unit ONE_THREAD SOURCES calls/call_test.cc LIBRARIES gpurun_protocol_call)
gpurun_test(host_mirror_test unit SOURCES calls/host_mirror_test.cc LIBRARIES gpurun_protocol)
gpurun_test(link_calls_test unit ONE_THREAD SOURCES calls/link_calls_test.cc LIBRARIES gpurun_protocol_module)
gpurun_test(module_calls_test unit ONE_THREAD SOURCES calls/module_calls_test.cc LIBRARIES gpurun_protocol_module)
