gpurun_test(client_session_test unit
            SOURCES "${CMAKE_CURRENT_LIST_DIR}/session_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/session_options_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/session_events_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/receiving_role_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/stream_progress_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/device_pace_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/upload_waits_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/deferred_errors_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/observation_test.cc"
            LIBRARIES gpurun_client_session gpurun_transport_testing)
gpurun_test(connection_count_test unit ONE_THREAD SOURCES "${CMAKE_CURRENT_LIST_DIR}/connection_count_test.cc"
            LIBRARIES gpurun_client_session)
gpurun_test(bulk_opener_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/bulk_opener_test.cc"
            LIBRARIES gpurun_client_session gpurun_transport_testing TIMEOUT 30)
gpurun_test(client_hostile_worker_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/hostile_worker_test.cc"
            LIBRARIES gpurun_client_session gpurun_transport_testing)
gpurun_test(client_bulk_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/bulk_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/bulk_receive_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/spread_copies_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/whole_copies_test.cc"
            LIBRARIES gpurun_client_session gpurun_transport_testing)
gpurun_test(client_copies_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/copies_test.cc"
            LIBRARIES gpurun_client_session gpurun_transport_testing)
gpurun_test(client_stats_report_test unit
            SOURCES "${CMAKE_CURRENT_LIST_DIR}/stats_report_test.cc" "${CMAKE_CURRENT_LIST_DIR}/stats_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/recorder_test.cc" "${CMAKE_CURRENT_LIST_DIR}/trace_test.cc"
            LIBRARIES gpurun_client_session nlohmann_json::nlohmann_json)
