gpurun_test(protocol_frame_test unit ONE_THREAD SOURCES "${CMAKE_CURRENT_LIST_DIR}/log/frame_test.cc"
            LIBRARIES gpurun_protocol)
gpurun_test(protocol_worker_statistics_test unit ONE_THREAD SOURCES "${CMAKE_CURRENT_LIST_DIR}/statistics/worker_statistics_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/statistics/recording_test.cc" "${CMAKE_CURRENT_LIST_DIR}/statistics/worker_refusals_test.cc"
            LIBRARIES gpurun_protocol gpurun_driver_abi)
gpurun_test(protocol_receipts_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/bulk/receipts_test.cc"
            LIBRARIES gpurun_protocol_packing)
gpurun_test(protocol_chunks_to_send_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/bulk/chunks_to_send_test.cc"
            LIBRARIES gpurun_protocol_packing)
gpurun_test(protocol_packed_chunk_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/bulk/packed_chunk_test.cc"
            LIBRARIES gpurun_protocol_packing)
gpurun_test(protocol_packed_records_test unit ONE_THREAD SOURCES "${CMAKE_CURRENT_LIST_DIR}/log/packed_records_test.cc"
            LIBRARIES gpurun_protocol_packing gpurun_lz4)
gpurun_test(protocol_bulk_head_test unit ONE_THREAD SOURCES "${CMAKE_CURRENT_LIST_DIR}/bulk/bulk_head_test.cc"
            LIBRARIES gpurun_protocol)
