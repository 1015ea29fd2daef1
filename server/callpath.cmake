# The call path of the worker: handles, issue queues, decoder, executor.
add_library(gpurun_server_callpath STATIC handles.cc issue_queue.cc)
target_link_libraries(gpurun_server_callpath PUBLIC gpurun_protocol gpurun_base PRIVATE gpurun_options)
