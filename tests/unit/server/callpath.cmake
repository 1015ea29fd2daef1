gpurun_test(server_callpath_test unit
            SOURCES "${CMAKE_CURRENT_LIST_DIR}/worker/execution/decoder_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/worker/execution/outbox_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/worker/execution/executor_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/worker/execution/early_waits_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/worker/execution/free_order_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/worker/execution/handles_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/worker/execution/issue_queue_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/bulk/bulk_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/bulk/bulk_lanes_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/bulk/bulk_out_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/bulk/bulk_pulls_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/bulk/bulk_writes_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/worker/execution/carried_copies_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/worker/execution/gathered_copies_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/worker/stats/recorder_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/bulk/staging_test.cc"
            LIBRARIES gpurun_server_callpath gpurun_transport_testing)
gpurun_test(image_folder_test unit
            SOURCES images/image_folder_test.cc ${CMAKE_SOURCE_DIR}/server/worker/sandbox/worker_user.cc
            LIBRARIES gpurun_server_images)
gpurun_test(hot_calls_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/worker/execution/hot_calls_test.cc"
            LIBRARIES gpurun_server_handlers gpurun_server_callpath gpurun_transport_testing)
gpurun_test(numa_placement_test unit
            SOURCES worker/sandbox/numa_placement_test.cc ${CMAKE_SOURCE_DIR}/server/worker/sandbox/numa_placement.cc
            LIBRARIES gpurun_base)
if(GPURUN_VERBS_INCLUDE)
  gpurun_test(worker_fabric_test unit
              SOURCES worker/channels/worker_fabric_test.cc ${CMAKE_SOURCE_DIR}/server/worker/channels/worker_fabric.cc
              LIBRARIES gpurun_server_callpath gpurun_transport_rdma)
  target_include_directories(worker_fabric_test SYSTEM PRIVATE "${GPURUN_VERBS_INCLUDE}")
  gpurun_on_verbs_double(worker_fabric_test)
else()
  gpurun_skipped_test(worker_fabric_test unit "no infiniband/verbs.h (libibverbs-dev)")
endif()
if(TARGET gpurun_emulated_cuda)
  gpurun_test(direct_memory_test unit SOURCES driver/direct_memory_test.cc LIBRARIES gpurun_server_driver
              ENVIRONMENT GPURUN_EMULATED=memory=192MiB)
  add_dependencies(direct_memory_test gpurun_emulated_cuda)
  target_compile_definitions(direct_memory_test PRIVATE
    EMULATED_DEVICE="$<TARGET_FILE:gpurun_emulated_cuda>")
else()
  gpurun_skipped_test(direct_memory_test unit "no emulated device in this build")
endif()
