gpurun_test(client_session_test unit
            SOURCES "${CMAKE_CURRENT_LIST_DIR}/session/session_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/session/session_options_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/session/session_events_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/session/stream_polls_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/session/receiving_role_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/early_answers/stream_progress_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/early_answers/early_wait_limiter_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/early_answers/upload_waits_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/early_answers/copy_answers_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/early_answers/free_answers_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/early_answers/deferred_errors_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/session/worker_statistics_test.cc"
            LIBRARIES gpurun_client_session gpurun_transport_testing)
gpurun_test(connection_count_test unit ONE_THREAD SOURCES "${CMAKE_CURRENT_LIST_DIR}/bulk/connection_count_test.cc"
            LIBRARIES gpurun_client_session)
gpurun_test(bulk_opener_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/bulk/bulk_opener_test.cc"
            LIBRARIES gpurun_client_session gpurun_transport_testing TIMEOUT 30)
gpurun_test(client_hostile_worker_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/session/hostile_worker_test.cc"
            LIBRARIES gpurun_client_session gpurun_transport_testing)
gpurun_test(client_bulk_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/bulk/bulk_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/bulk/lent_memory_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/bulk/bulk_parts_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/bulk/bulk_receive_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/bulk/spread_copies_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/bulk/whole_copies_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/bulk/written_results_test.cc"
            LIBRARIES gpurun_client_session gpurun_transport_testing)
gpurun_test(client_host_memory_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/host_memory/access_check_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/host_memory/arena_blocks_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/host_memory/arena_file_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/host_memory/host_mirror_test.cc"
            LIBRARIES gpurun_client_session gpurun_client_state)
gpurun_test(client_host_mirror_traffic_test unit
            SOURCES "${CMAKE_CURRENT_LIST_DIR}/session/host_mirror_traffic_test.cc"
            LIBRARIES gpurun_client_session gpurun_transport_testing)
gpurun_test(client_copies_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/session/copies_test.cc"
            LIBRARIES gpurun_client_session gpurun_transport_testing)
gpurun_test(client_stats_report_test unit
            SOURCES "${CMAKE_CURRENT_LIST_DIR}/stats/stats_report_test.cc" "${CMAKE_CURRENT_LIST_DIR}/stats/stats_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/stats/recorder_test.cc" "${CMAKE_CURRENT_LIST_DIR}/stats/trace_test.cc"
            LIBRARIES gpurun_client_session nlohmann_json::nlohmann_json)
