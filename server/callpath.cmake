# The call path of the worker: handles, issue queues, decoder, outbox.
add_library(gpurun_server_callpath STATIC handles.cc issue_queue.cc decoder.cc outbox.cc)
target_link_libraries(gpurun_server_callpath PUBLIC gpurun_protocol gpurun_transport gpurun_base
                      PRIVATE gpurun_options)
